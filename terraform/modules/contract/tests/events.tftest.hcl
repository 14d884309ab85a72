variables {
  name       = "demo"
  region     = "us-east-1"
  account_id = "111122223333"
}

run "an_interruption_notice_reaches_the_queue" {
  command = plan

  assert {
    condition     = jsondecode(output.event_patterns["spot_interruption"]) == { source = ["aws.ec2"], detail-type = ["EC2 Spot Instance Interruption Warning"] }
    error_message = "The interruption warning is the one event that may never be left out, whatever its detail says."
  }
}

run "a_rebalance_recommendation_reaches_the_queue" {
  command = plan

  assert {
    condition     = jsondecode(output.event_patterns["rebalance_recommendation"])["detail-type"][0] == "EC2 Instance Rebalance Recommendation"
    error_message = "The recommendation is what a job saves on."
  }
}

run "every_end_of_an_instance_reaches_the_queue_and_no_start_does" {
  command = plan

  assert {
    condition     = toset(jsondecode(output.event_patterns["instance_state_change"]).detail.state) == toset(["stopping", "stopped", "shutting-down", "terminated"])
    error_message = "An instance can end without a notice; a busy account's starts are noise."
  }
}

run "an_event_that_is_left_out_has_neither_pattern_nor_rule" {
  command = plan

  variables {
    enabled_events = ["spot_interruption"]
  }

  assert {
    condition     = keys(output.event_patterns) == ["spot_interruption"] && output.arns.rules == ["arn:aws:events:us-east-1:111122223333:rule/demo-spot-interruption"]
    error_message = "Patterns, rules and the queue policy must name the same events."
  }
}

run "the_interruption_notice_cannot_be_switched_off" {
  command = plan

  variables {
    enabled_events = ["rebalance_recommendation"]
  }

  expect_failures = [var.enabled_events]
}

run "an_unknown_event_is_refused" {
  command = plan

  variables {
    enabled_events = ["spot_interruption", "health"]
  }

  expect_failures = [var.enabled_events]
}
