variables {
  name       = "demo"
  region     = "us-east-1"
  account_id = "111122223333"
}

run "the_tags_are_the_ones_the_service_writes" {
  command = plan

  assert {
    condition     = output.tags == { "managed-by" = "spot-watchdog", "spot-watchdog:deployment" = "demo" }
    error_message = "The service finds and ends its instances by these tags."
  }
}

run "the_bucket_is_named_after_deployment_account_and_region" {
  command = plan

  assert {
    condition     = output.names.checkpoint_bucket == "demo-checkpoints-111122223333-us-east-1"
    error_message = "Bucket names are global: two accounts must not want the same."
  }
}

run "the_longest_name_in_the_longest_region_still_makes_a_bucket" {
  command = plan

  variables {
    name   = "abcdefghijklmnopqrst"
    region = "ap-southeast-1"
  }

  assert {
    condition     = length(output.names.checkpoint_bucket) <= 63
    error_message = "A bucket's name has at most 63 characters."
  }
}

run "a_bucket_of_ones_own_is_taken" {
  command = plan

  variables {
    checkpoint_bucket = "team-checkpoints"
  }

  assert {
    condition     = output.arns.checkpoint_bucket == "arn:aws:s3:::team-checkpoints"
    error_message = "The policies must follow the bucket that is named."
  }
}

run "another_partition_runs_through_every_arn" {
  command = plan

  variables {
    partition           = "aws-cn"
    region              = "cn-north-1"
    launch_template_ids = ["lt-0123456789abcdef0"]
  }

  assert {
    condition = !strcontains(join(" ", [
      output.service_policy, output.service_trust_policy, output.agent_policy,
      output.queue_policy, output.dead_letter_queue_policy, output.bucket_policy,
    ]), "arn:aws:")
    error_message = "No ARN may have its partition written out."
  }
}

run "a_name_that_no_bucket_can_carry_is_refused" {
  command = plan

  variables {
    name = "My_Deployment"
  }

  expect_failures = [var.name]
}

run "a_name_that_makes_the_bucket_too_long_is_refused" {
  command = plan

  variables {
    name = "abcdefghijklmnopqrstu"
  }

  expect_failures = [var.name]
}

run "a_word_that_is_no_partition_is_refused" {
  command = plan

  variables {
    partition = "amazon"
  }

  expect_failures = [var.partition]
}

run "a_zone_is_no_region" {
  command = plan

  variables {
    region = "us-east-1a"
  }

  expect_failures = [var.region]
}

run "an_account_id_that_lost_its_leading_zero_is_refused" {
  command = plan

  variables {
    account_id = "11122223333"
  }

  expect_failures = [var.account_id]
}

run "a_bucket_url_is_no_bucket_name" {
  command = plan

  variables {
    checkpoint_bucket = "s3://team-checkpoints/jobs"
  }

  expect_failures = [var.checkpoint_bucket]
}

run "a_bucket_that_lives_in_one_zone_is_refused" {
  command = plan

  variables {
    checkpoint_bucket = "team--use1-az4--x-s3"
  }

  expect_failures = [var.checkpoint_bucket]
}

run "a_launch_template_by_name_is_refused" {
  command = plan

  variables {
    launch_template_ids = ["gpu-worker"]
  }

  expect_failures = [var.launch_template_ids]
}

run "a_zone_is_no_subnet" {
  command = plan

  variables {
    subnet_ids = ["us-east-1a"]
  }

  expect_failures = [var.subnet_ids]
}

run "an_empty_list_of_subnets_is_refused" {
  command = plan

  variables {
    subnet_ids = []
  }

  expect_failures = [var.subnet_ids]
}

run "a_whole_account_may_not_assume_the_service_role" {
  command = plan

  variables {
    service_principal_arns = ["arn:aws:iam::111122223333:root"]
  }

  expect_failures = [var.service_principal_arns]
}
