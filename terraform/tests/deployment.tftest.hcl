mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  name                = "demo"
  launch_template_ids = ["lt-0123456789abcdef0"]
}

run "a_deployment_tells_the_service_all_it_has_to_know" {
  assert {
    condition = output.service_environment == tomap({
      SPOT_WATCHDOG_DEPLOYMENT       = "demo"
      SPOT_WATCHDOG_AWS_REGION       = "us-east-1"
      SPOT_WATCHDOG_QUEUE_URL        = "https://sqs.us-east-1.amazonaws.com/111122223333/mocked"
      SPOT_WATCHDOG_CHECKPOINT_STORE = "s3://demo-checkpoints-111122223333-us-east-1"
      SPOT_WATCHDOG_LAUNCH_TEMPLATES = "[\"lt-0123456789abcdef0\"]"
    })
    error_message = "The output must be the environment of `spot-watchdog serve`, ready to use."
  }
}

run "subnets_and_a_bucket_that_exist_are_used" {
  command = plan

  variables {
    create_checkpoint_bucket = false
    checkpoint_bucket        = "team-checkpoints"
    subnet_ids               = ["subnet-0aaa1111bbb22220a"]
  }

  assert {
    condition     = output.service_environment.SPOT_WATCHDOG_CHECKPOINT_STORE == "s3://team-checkpoints" && output.checkpoint_bucket == null
    error_message = "The service must be told of the bucket that exists."
  }

  assert {
    condition     = output.service_environment.SPOT_WATCHDOG_SUBNETS == "[\"subnet-0aaa1111bbb22220a\"]"
    error_message = "The service must try the subnets that IAM lets it launch in, and no others."
  }
}

run "a_bucket_that_is_neither_created_nor_named_is_refused" {
  command = plan

  variables {
    create_checkpoint_bucket = false
  }

  expect_failures = [output.service_environment]
}

run "nothing_is_created_when_create_is_off" {
  command = plan

  variables {
    create = false
  }

  assert {
    condition = (
      length(output.service_environment) == 0 && output.queue_url == null && output.dead_letter_queue_arn == null
      && output.service_role_arn == null && output.agent_instance_profile_arn == null && output.checkpoint_bucket == null
    )
    error_message = "With create = false every output is null or empty."
  }
}
