mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  name                = "demo"
  launch_template_ids = ["lt-0123456789abcdef0"]
}

run "the_passed_role_is_the_instances_and_nobody_assumes_the_others" {
  module {
    source = "./modules/iam"
  }

  assert {
    condition     = strcontains(aws_iam_role_policy.service[0].policy, "\"arn:aws:iam::111122223333:role/${aws_iam_instance_profile.agent[0].role}\"")
    error_message = "PassRole must name the role that the instances get."
  }

  assert {
    condition     = aws_iam_role_policy.agent[0].role == aws_iam_role.agent[0].id && aws_iam_role_policy.service[0].role == aws_iam_role.service[0].id
    error_message = "Each policy belongs to its own role."
  }

  assert {
    condition = (
      jsondecode(aws_iam_role.agent[0].assume_role_policy).Statement[0].Principal.Service == "ec2.amazonaws.com"
      && jsondecode(aws_iam_role.service[0].assume_role_policy).Statement[0].Principal.Service == "ecs-tasks.amazonaws.com"
    )
    error_message = "The roles' trust must not be swapped."
  }
}

run "a_service_that_may_launch_nothing_is_refused" {
  command = plan

  module {
    source = "./modules/iam"
  }

  variables {
    launch_template_ids = []
  }

  expect_failures = [var.launch_template_ids]
}
