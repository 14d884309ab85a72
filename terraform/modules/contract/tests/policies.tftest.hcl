variables {
  name                = "demo"
  region              = "us-east-1"
  account_id          = "111122223333"
  launch_template_ids = ["lt-0123456789abcdef0"]
}

run "an_instance_is_launched_only_tagged_from_a_named_template_and_with_imdsv2" {
  command = plan

  assert {
    condition = alltrue([
      for statement in jsondecode(output.service_policy).Statement :
      try(statement.Condition.StringEquals["aws:RequestTag/managed-by"], "") == "spot-watchdog"
      && try(statement.Condition.StringEquals["aws:RequestTag/spot-watchdog:deployment"], "") == "demo"
      && try(statement.Condition.StringEquals["ec2:MetadataHttpTokens"], "") == "required"
      && try(statement.Condition.ArnLike["ec2:LaunchTemplate"], []) == ["arn:aws:ec2:us-east-1:111122223333:launch-template/lt-0123456789abcdef0"]
      if statement.Action == "ec2:RunInstances" && strcontains(jsonencode(statement.Resource), ":instance/")
    ])
    error_message = "A launch without our tags, from another template or with IMDSv1 must be refused by IAM."
  }

  assert {
    condition = toset([
      for statement in jsondecode(output.service_policy).Statement : statement.Condition.StringEquals["ec2:InstanceMarketType"]
      if statement.Action == "ec2:RunInstances" && strcontains(jsonencode(statement.Resource), ":instance/")
    ]) == toset(["spot", "on-demand"])
    error_message = "Each market has a statement of its own."
  }
}

run "on_demand_can_be_refused_altogether" {
  command = plan

  variables {
    allow_on_demand = false
  }

  assert {
    condition = [
      for statement in jsondecode(output.service_policy).Statement : statement.Condition.StringEquals["ec2:InstanceMarketType"]
      if statement.Action == "ec2:RunInstances" && strcontains(jsonencode(statement.Resource), ":instance/")
    ] == ["spot"]
    error_message = "With allow_on_demand = false only Spot may be launched."
  }
}

run "the_image_and_the_firewall_come_from_the_template" {
  command = plan

  assert {
    condition = [
      for statement in jsondecode(output.service_policy).Statement : try(statement.Condition.Bool["ec2:IsLaunchTemplateResource"], "")
      if strcontains(jsonencode(statement.Resource), ":image/") || strcontains(jsonencode(statement.Resource), ":security-group/")
    ] == ["true"]
    error_message = "A launch that brings its own image or security group must be refused."
  }
}

run "only_named_subnets_are_launched_in" {
  command = plan

  variables {
    subnet_ids = ["subnet-0aaa1111bbb22220a", "subnet-0aaa1111bbb22220b"]
  }

  assert {
    condition = [
      for statement in jsondecode(output.service_policy).Statement : statement.Resource if statement.Sid == "LaunchInTheseSubnets"
      ][0] == [
      "arn:aws:ec2:us-east-1:111122223333:subnet/subnet-0aaa1111bbb22220a",
      "arn:aws:ec2:us-east-1:111122223333:subnet/subnet-0aaa1111bbb22220b",
    ]
    error_message = "subnet_ids is a fence, not a hint."
  }
}

run "only_instances_of_this_deployment_are_ended" {
  command = plan

  assert {
    condition = [
      for statement in jsondecode(output.service_policy).Statement : statement.Condition.StringEquals if contains(flatten([statement.Action]), "ec2:TerminateInstances")
    ] == [{ "aws:ResourceTag/managed-by" = "spot-watchdog", "aws:ResourceTag/spot-watchdog:deployment" = "demo" }]
    error_message = "A bug in the sweep must not be able to end somebody else's instance."
  }
}

run "exactly_one_role_is_passed_and_to_ec2_alone" {
  command = plan

  assert {
    condition = [
      for statement in jsondecode(output.service_policy).Statement : [statement.Resource, statement.Condition.StringEquals["iam:PassedToService"]]
      if contains(flatten([statement.Action]), "iam:PassRole")
    ] == [["arn:aws:iam::111122223333:role/demo-agent", "ec2.amazonaws.com"]]
    error_message = "PassRole on more than the agent's role is a way to every right of the account."
  }
}

run "tags_are_set_at_launch_only" {
  command = plan

  assert {
    condition = [
      for statement in jsondecode(output.service_policy).Statement : statement.Condition.StringEquals["ec2:CreateAction"] if statement.Action == "ec2:CreateTags"
    ] == ["RunInstances"]
    error_message = "Who may tag a running instance may make it ours, and end it."
  }
}

run "a_star_stands_only_where_aws_knows_no_resource" {
  command = plan

  assert {
    condition = toset([
      for statement in jsondecode(output.service_policy).Statement : statement.Sid if contains(flatten([statement.Resource]), "*")
    ]) == toset(["SeeTheMarketAndTheInstances", "ReadQuotas"])
    error_message = "EC2's describe calls and Service Quotas take no resource; everything else does."
  }

  assert {
    condition = alltrue(flatten([
      for policy in [output.service_policy, output.agent_policy] : [
        for statement in jsondecode(policy).Statement : [for action in flatten([statement.Action]) : !strcontains(action, "*")]
      ]
    ]))
    error_message = "No action may be a wildcard."
  }
}

run "the_agent_stays_in_its_deployment_and_cannot_remove_the_fencing_register" {
  command = plan

  assert {
    condition = flatten([
      for statement in jsondecode(output.agent_policy).Statement : [for resource in flatten([statement.Resource]) : replace(resource, "/.*:::[^/]+./", "")]
      if length([for action in flatten([statement.Action]) : action if strcontains(action, "Delete")]) > 0
    ]) == ["demo/jobs/*/data/*", "demo/jobs/*/manifests/*", "demo/jobs/*/probes/*"]
    error_message = "A job whose HEAD is deleted could be registered again at token 0: the training code, which can read the agent's credentials, must not be able to."
  }

  assert {
    condition     = !strcontains(output.agent_policy, "DeleteObjectVersion") && !strcontains(output.agent_policy, "ec2:") && !strcontains(output.agent_policy, "sqs:")
    error_message = "The training code gets nothing but its checkpoints, and cannot delete them for good."
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(output.agent_policy).Statement :
      alltrue([for resource in flatten([statement.Resource]) : startswith(resource, "arn:aws:s3:::demo-checkpoints-111122223333-us-east-1/demo/jobs/*")])
      || try(statement.Condition.StringLike["s3:prefix"], "") == "demo/jobs/*"
    ])
    error_message = "Two deployments may share a bucket, not their checkpoints."
  }
}

run "ecs_tasks_of_this_account_assume_the_service_role_unless_somebody_is_named" {
  command = plan

  assert {
    condition     = jsondecode(output.service_trust_policy).Statement[0].Condition.StringEquals["aws:SourceAccount"] == "111122223333"
    error_message = "Without the source account ECS could be talked into it by another account."
  }
}

run "a_named_principal_assumes_the_service_role_instead_of_ecs" {
  command = plan

  variables {
    service_principal_arns = ["arn:aws:iam::111122223333:role/watchdog-host"]
  }

  assert {
    condition     = [for statement in jsondecode(output.service_trust_policy).Statement : statement.Principal] == [{ AWS = ["arn:aws:iam::111122223333:role/watchdog-host"] }]
    error_message = "Exactly the named principals may assume the role."
  }
}

run "only_our_rules_write_to_the_queues" {
  command = plan

  assert {
    condition = alltrue([
      for policy in [output.queue_policy, output.dead_letter_queue_policy] : alltrue([
        for statement in jsondecode(policy).Statement :
        toset(statement.Condition.ArnEquals["aws:SourceArn"]) == toset([
          "arn:aws:events:us-east-1:111122223333:rule/demo-instance-state-change",
          "arn:aws:events:us-east-1:111122223333:rule/demo-rebalance-recommendation",
          "arn:aws:events:us-east-1:111122223333:rule/demo-spot-interruption",
        ])
        if statement.Effect == "Allow"
      ])
    ])
    error_message = "Whoever can write to the queue can move jobs."
  }
}

run "nothing_is_spoken_without_tls" {
  command = plan

  assert {
    condition = alltrue([
      for policy in [output.queue_policy, output.dead_letter_queue_policy, output.bucket_policy] : anytrue([
        for statement in jsondecode(policy).Statement :
        statement.Effect == "Deny" && statement.Principal == "*" && try(statement.Condition.Bool["aws:SecureTransport"], "") == "false"
      ])
    ])
    error_message = "Every resource policy refuses plain HTTP."
  }
}

run "the_fencing_register_is_never_written_blindly" {
  command = plan

  assert {
    condition = anytrue([
      for statement in jsondecode(output.bucket_policy).Statement :
      statement.Effect == "Deny"
      && statement.Principal == "*"
      && statement.Action == "s3:PutObject"
      && statement.Resource == "arn:aws:s3:::demo-checkpoints-111122223333-us-east-1/demo/jobs/*/HEAD"
      && statement.Condition == { Null = { "s3:if-match" = "true", "s3:if-none-match" = "true" } }
    ])
    error_message = "A HEAD without If-Match or If-None-Match must be refused by the bucket itself, whatever the writer believes."
  }
}

run "a_manifest_is_never_written_over" {
  command = plan

  assert {
    condition = anytrue([
      for statement in jsondecode(output.bucket_policy).Statement :
      statement.Effect == "Deny"
      && endswith(try(tostring(statement.Resource), ""), "/demo/jobs/*/manifests/*")
      && try(statement.Condition, {}) == { Null = { "s3:if-none-match" = "true" } }
    ])
    error_message = "A manifest must be created with If-None-Match."
  }
}

run "no_policy_outgrows_what_iam_takes" {
  command = plan

  assert {
    condition     = length(output.service_policy) < 10240 && length(output.agent_policy) < 10240
    error_message = "The inline policies of a role have 10,240 characters in all."
  }
}
