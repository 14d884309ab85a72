################################################################################
# Names
################################################################################

locals {
  tags = {
    "managed-by"               = "spot-watchdog"
    "spot-watchdog:deployment" = var.name
  }

  names = {
    queue              = var.name
    dead_letter_queue  = "${var.name}-dead-letters"
    service_role       = "${var.name}-service"
    agent_role         = "${var.name}-agent"
    agent_profile      = "${var.name}-agent"
    checkpoint_bucket  = coalesce(var.checkpoint_bucket, "${var.name}-checkpoints-${var.account_id}-${var.region}")
    checkpoint_prefix  = var.name
    interruption_rules = { for event in var.enabled_events : event => "${var.name}-${replace(event, "_", "-")}" }
  }

  arns = {
    queue             = "arn:${var.partition}:sqs:${var.region}:${var.account_id}:${local.names.queue}"
    dead_letter_queue = "arn:${var.partition}:sqs:${var.region}:${var.account_id}:${local.names.dead_letter_queue}"
    agent_role        = "arn:${var.partition}:iam::${var.account_id}:role/${local.names.agent_role}"
    checkpoint_bucket = "arn:${var.partition}:s3:::${local.names.checkpoint_bucket}"
    rules             = [for name in values(local.names.interruption_rules) : "arn:${var.partition}:events:${var.region}:${var.account_id}:rule/${name}"]
    launch_templates  = [for id in var.launch_template_ids : "${local.ec2}:launch-template/${id}"]
    subnets           = [for id in coalesce(var.subnet_ids, ["*"]) : "${local.ec2}:subnet/${id}"]
  }

  ec2     = "arn:${var.partition}:ec2:${var.region}:${var.account_id}"
  ec2_any = "arn:${var.partition}:ec2:${var.region}:*" # images and snapshots may belong to somebody else
  jobs    = "${local.arns.checkpoint_bucket}/${local.names.checkpoint_prefix}/jobs"
  probes  = "${local.arns.checkpoint_bucket}/${local.names.checkpoint_prefix}/probe"
}

################################################################################
# Events
################################################################################

locals {
  # EC2's events cannot be filtered by tag: the service drops instances that are not its own.
  known_patterns = {
    spot_interruption = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Spot Instance Interruption Warning"]
    }
    rebalance_recommendation = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Instance Rebalance Recommendation"]
    }
    instance_state_change = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Instance State-change Notification"]
      # The end of an instance that gave no notice. Its start is seen by DescribeInstances and by the agent's first report.
      detail = { state = ["stopping", "stopped", "shutting-down", "terminated"] }
    }
  }

  event_patterns = { for event in var.enabled_events : event => local.known_patterns[event] }
}

################################################################################
# Service role
################################################################################

locals {
  service_statements = concat(
    [
      {
        # EC2's describe calls know no resources; the Region is the only fence there is.
        Sid    = "SeeTheMarketAndTheInstances"
        Effect = "Allow"
        Action = [
          "ec2:DescribeInstanceTypeOfferings",
          "ec2:DescribeInstanceTypes",
          "ec2:DescribeInstances",
          "ec2:DescribeSpotPriceHistory",
          "ec2:DescribeSubnets",
        ]
        Resource  = "*"
        Condition = { StringEquals = { "ec2:Region" = var.region } }
      },
      {
        Sid      = "ReadQuotas"
        Effect   = "Allow"
        Action   = "servicequotas:ListServiceQuotas"
        Resource = "*"
      },
    ],
    # One statement per market, so that On-Demand can be switched off without touching Spot.
    [for market in var.allow_on_demand ? ["spot", "on-demand"] : ["spot"] : {
      Sid      = market == "spot" ? "LaunchSpot" : "LaunchOnDemand"
      Effect   = "Allow"
      Action   = "ec2:RunInstances"
      Resource = "${local.ec2}:instance/*"
      Condition = {
        StringEquals = merge(
          { for key, value in local.tags : "aws:RequestTag/${key}" => value },
          {
            "ec2:InstanceMarketType" = market
            "ec2:MetadataHttpTokens" = "required" # IMDSv2 only: a job's web fetcher must not hand out the agent's credentials
          },
        )
        ArnLike = { "ec2:LaunchTemplate" = local.arns.launch_templates }
      }
    }],
    [
      {
        Sid      = "LaunchFromTheseTemplates"
        Effect   = "Allow"
        Action   = "ec2:RunInstances"
        Resource = local.arns.launch_templates
      },
      {
        # Image, firewall and key come from the template; a request that brings its own is refused.
        Sid    = "LaunchWithWhatTheTemplateNames"
        Effect = "Allow"
        Action = "ec2:RunInstances"
        Resource = [
          "${local.ec2_any}:image/*",
          "${local.ec2_any}:snapshot/*",
          "${local.ec2}:key-pair/*",
          "${local.ec2}:placement-group/*",
          "${local.ec2}:security-group/*",
        ]
        Condition = {
          ArnLike = { "ec2:LaunchTemplate" = local.arns.launch_templates }
          Bool    = { "ec2:IsLaunchTemplateResource" = "true" }
        }
      },
      {
        # The subnet is the service's choice: it is how a job changes its Availability Zone.
        Sid      = "LaunchInTheseSubnets"
        Effect   = "Allow"
        Action   = "ec2:RunInstances"
        Resource = local.arns.subnets
      },
      {
        # No tag is asked for here: these are tagged only if the request says so, and one untagged part would refuse the whole call.
        Sid    = "LaunchCreates"
        Effect = "Allow"
        Action = "ec2:RunInstances"
        Resource = [
          "${local.ec2}:network-interface/*",
          "${local.ec2}:spot-instances-request/*",
          "${local.ec2}:volume/*",
        ]
      },
      {
        Sid    = "TagOnlyAtLaunch"
        Effect = "Allow"
        Action = "ec2:CreateTags"
        Resource = [
          "${local.ec2}:instance/*",
          "${local.ec2}:network-interface/*",
          "${local.ec2}:spot-instances-request/*",
          "${local.ec2}:volume/*",
        ]
        Condition = { StringEquals = { "ec2:CreateAction" = "RunInstances" } }
      },
      {
        Sid       = "EndOnlyOwnInstances"
        Effect    = "Allow"
        Action    = "ec2:TerminateInstances"
        Resource  = "${local.ec2}:instance/*"
        Condition = { StringEquals = { for key, value in local.tags : "aws:ResourceTag/${key}" => value } }
      },
      {
        # The role inside the instance profile, not the profile.
        Sid       = "PassOnlyTheAgentRole"
        Effect    = "Allow"
        Action    = "iam:PassRole"
        Resource  = local.arns.agent_role
        Condition = { StringEquals = { "iam:PassedToService" = "ec2.amazonaws.com" } }
      },
      {
        Sid    = "ReadTheQueue"
        Effect = "Allow"
        Action = [
          "sqs:DeleteMessage",
          "sqs:GetQueueAttributes",
          "sqs:GetQueueUrl",
          "sqs:ReceiveMessage",
        ]
        Resource = local.arns.queue
      },
      {
        Sid      = "PutAwayWhatCannotBeRead"
        Effect   = "Allow"
        Action   = ["sqs:GetQueueUrl", "sqs:SendMessage"]
        Resource = local.arns.dead_letter_queue
      },
      {
        # Without ListBucket a missing key answers 403, and "no HEAD" could not be told from "no right".
        Sid      = "SeeTheCheckpointBucket"
        Effect   = "Allow"
        Action   = "s3:ListBucket"
        Resource = local.arns.checkpoint_bucket
      },
      {
        Sid      = "ReadJobs"
        Effect   = "Allow"
        Action   = "s3:GetObject"
        Resource = "${local.jobs}/*"
      },
      {
        # The service registers jobs; checkpoints are the agents' to write.
        Sid      = "RegisterJobs"
        Effect   = "Allow"
        Action   = "s3:PutObject"
        Resource = ["${local.jobs}/*/HEAD", "${local.jobs}/*/spec.json"]
      },
      {
        # The start-up proof that the store honours conditional writes.
        Sid      = "ProveConditionalWrites"
        Effect   = "Allow"
        Action   = ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
        Resource = "${local.probes}/*"
      },
    ],
  )

  ecs_trust = {
    Sid       = "EcsTasksOfThisAccount"
    Effect    = "Allow"
    Principal = { Service = "ecs-tasks.amazonaws.com" }
    Action    = "sts:AssumeRole"
    Condition = {
      StringEquals = { "aws:SourceAccount" = var.account_id }
      ArnLike      = { "aws:SourceArn" = "arn:${var.partition}:ecs:${var.region}:${var.account_id}:*" }
    }
  }

  principals_trust = {
    Sid       = "NamedPrincipals"
    Effect    = "Allow"
    Principal = { AWS = var.service_principal_arns }
    Action    = "sts:AssumeRole"
  }
}

################################################################################
# Agent role
################################################################################

locals {
  # The training code can read this role's credentials from the metadata service: nothing of other deployments, and no right that
  # could take a job's fencing register away.
  agent_statements = [
    {
      Sid      = "OwnDeploymentsJobs"
      Effect   = "Allow"
      Action   = ["s3:AbortMultipartUpload", "s3:GetObject", "s3:ListMultipartUploadParts", "s3:PutObject"]
      Resource = "${local.jobs}/*"
    },
    {
      # Checkpoints that newer ones have replaced. In a versioned bucket a deletion can be undone: s3:DeleteObjectVersion is not given.
      Sid      = "DropOldCheckpoints"
      Effect   = "Allow"
      Action   = "s3:DeleteObject"
      Resource = ["${local.jobs}/*/data/*", "${local.jobs}/*/manifests/*", "${local.jobs}/*/probes/*"]
    },
    {
      Sid       = "ListOwnDeploymentsJobs"
      Effect    = "Allow"
      Action    = "s3:ListBucket"
      Resource  = local.arns.checkpoint_bucket
      Condition = { StringLike = { "s3:prefix" = "${local.names.checkpoint_prefix}/jobs/*" } }
    },
  ]

  agent_trust = {
    Sid       = "Instances"
    Effect    = "Allow"
    Principal = { Service = "ec2.amazonaws.com" }
    Action    = "sts:AssumeRole"
  }
}

################################################################################
# Resource policies
################################################################################

locals {
  queue_statements = { for queue in ["queue", "dead_letter_queue"] : queue => [
    {
      Sid       = "OnlyOurRules"
      Effect    = "Allow"
      Principal = { Service = "events.amazonaws.com" }
      Action    = "sqs:SendMessage"
      Resource  = local.arns[queue]
      Condition = { ArnEquals = { "aws:SourceArn" = local.arns.rules } }
    },
    {
      Sid       = "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "sqs:*"
      Resource  = local.arns[queue]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    },
  ] }

  bucket_statements = [
    {
      Sid       = "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [local.arns.checkpoint_bucket, "${local.arns.checkpoint_bucket}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    },
    {
      # HEAD is the fencing register: it is created once (If-None-Match) and then only replaced by who has read it (If-Match).
      # Both keys absent means a blind write. The parts of a multipart upload and copies carry neither, and are refused with it:
      # HEAD is a few hundred bytes and has no use for them.
      Sid       = "NoBlindWriteToTheFencingRegister"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:PutObject"
      Resource  = "${local.jobs}/*/HEAD"
      Condition = { Null = { "s3:if-match" = "true", "s3:if-none-match" = "true" } }
    },
    {
      Sid       = "ManifestsAreWrittenOnce"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:PutObject"
      Resource  = "${local.jobs}/*/manifests/*"
      Condition = { Null = { "s3:if-none-match" = "true" } }
    },
  ]
}
