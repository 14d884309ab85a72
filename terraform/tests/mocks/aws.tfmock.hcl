# Answers in the shape that the provider checks. Policies need none: they are values of modules/contract.

mock_data "aws_caller_identity" {
  defaults = {
    account_id = "111122223333"
  }
}

mock_data "aws_partition" {
  defaults = {
    partition = "aws"
  }
}

mock_data "aws_region" {
  defaults = {
    id = "us-east-1"
  }
}

mock_resource "aws_sqs_queue" {
  defaults = {
    arn = "arn:aws:sqs:us-east-1:111122223333:mocked"
    url = "https://sqs.us-east-1.amazonaws.com/111122223333/mocked"
  }
}

mock_resource "aws_cloudwatch_event_rule" {
  defaults = {
    arn = "arn:aws:events:us-east-1:111122223333:rule/mocked"
  }
}

mock_resource "aws_iam_role" {
  defaults = {
    arn = "arn:aws:iam::111122223333:role/mocked"
  }
}

mock_resource "aws_s3_bucket" {
  defaults = {
    id  = "demo-checkpoints-111122223333-us-east-1"
    arn = "arn:aws:s3:::demo-checkpoints-111122223333-us-east-1"
  }
}
