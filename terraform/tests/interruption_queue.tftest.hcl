mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  name = "demo"
  tags = { team = "vision", managed-by = "somebody else" }
}

run "every_event_has_a_rule_that_ends_in_an_encrypted_queue_and_nothing_is_dropped" {
  module {
    source = "./modules/interruption-queue"
  }

  assert {
    condition     = keys(aws_cloudwatch_event_rule.this) == ["instance_state_change", "rebalance_recommendation", "spot_interruption"]
    error_message = "One rule per event."
  }

  assert {
    condition     = alltrue([for event, target in aws_cloudwatch_event_target.this : target.rule == aws_cloudwatch_event_rule.this[event].name && target.arn == aws_sqs_queue.this[0].arn])
    error_message = "A rule without a target is a notice that nobody hears."
  }

  assert {
    condition     = { for event, rule in aws_cloudwatch_event_rule.this : event => "arn:aws:events:us-east-1:111122223333:rule/${rule.name}" } == { for arn in jsondecode(aws_sqs_queue_policy.this[0].policy).Statement[0].Condition.ArnEquals["aws:SourceArn"] : replace(replace(arn, "/.*rule.demo-/", ""), "-", "_") => arn }
    error_message = "The queue policy must name exactly the rules that exist."
  }

  assert {
    condition = (
      jsondecode(aws_sqs_queue.this[0].redrive_policy) == { deadLetterTargetArn = aws_sqs_queue.dead_letters[0].arn, maxReceiveCount = 5 }
      && alltrue([for target in aws_cloudwatch_event_target.this : target.dead_letter_config[0].arn == aws_sqs_queue.dead_letters[0].arn])
    )
    error_message = "A poisonous message goes aside after five tries; an undeliverable one goes to the same place."
  }

  assert {
    condition     = aws_sqs_queue.dead_letters[0].message_retention_seconds == 1209600
    error_message = "A dead letter waits for a person as long as SQS allows."
  }

  assert {
    condition     = aws_sqs_queue.this[0].sqs_managed_sse_enabled && aws_sqs_queue.dead_letters[0].sqs_managed_sse_enabled
    error_message = "Both queues are encrypted at rest."
  }

  assert {
    condition     = aws_sqs_queue.this[0].tags == tomap({ "team" = "vision", "managed-by" = "spot-watchdog", "spot-watchdog:deployment" = "demo" })
    error_message = "A user's tags are added; the deployment's own cannot be overwritten."
  }
}

run "a_rule_that_is_left_out_moves_no_other" {
  command = plan

  module {
    source = "./modules/interruption-queue"
  }

  variables {
    enabled_events = ["spot_interruption", "instance_state_change"]
  }

  assert {
    condition     = keys(aws_cloudwatch_event_rule.this) == ["instance_state_change", "spot_interruption"]
    error_message = "Rules are keyed by event, not by position."
  }
}

run "messages_that_a_bad_deployment_would_lose_are_refused" {
  command = plan

  module {
    source = "./modules/interruption-queue"
  }

  variables {
    message_retention_seconds = 300
  }

  expect_failures = [var.message_retention_seconds]
}
