data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

module "contract" {
  source = "../contract"

  name                   = var.name
  partition              = data.aws_partition.current.partition
  region                 = data.aws_region.current.id
  account_id             = data.aws_caller_identity.current.account_id
  launch_template_ids    = var.launch_template_ids
  subnet_ids             = var.subnet_ids
  allow_on_demand        = var.allow_on_demand
  service_principal_arns = var.service_principal_arns
  checkpoint_bucket      = var.checkpoint_bucket
}

locals {
  tags = merge(var.tags, module.contract.tags)
}

################################################################################
# Service role
################################################################################

resource "aws_iam_role" "service" {
  count = var.create ? 1 : 0

  name               = module.contract.names.service_role
  description        = "Spot Watchdog ${var.name}: watches, launches and ends the instances of its own jobs."
  assume_role_policy = module.contract.service_trust_policy

  tags = local.tags
}

resource "aws_iam_role_policy" "service" {
  count = var.create ? 1 : 0

  name   = "spot-watchdog"
  role   = aws_iam_role.service[0].id
  policy = module.contract.service_policy
}

################################################################################
# Agent role
################################################################################

resource "aws_iam_role" "agent" {
  count = var.create ? 1 : 0

  name               = module.contract.names.agent_role
  description        = "Spot Watchdog ${var.name}: what a training instance may do, which is to write and read checkpoints."
  assume_role_policy = module.contract.agent_trust_policy

  tags = local.tags
}

resource "aws_iam_role_policy" "agent" {
  count = var.create ? 1 : 0

  name   = "spot-watchdog-checkpoints"
  role   = aws_iam_role.agent[0].id
  policy = module.contract.agent_policy
}

resource "aws_iam_instance_profile" "agent" {
  count = var.create ? 1 : 0

  name = module.contract.names.agent_profile
  role = aws_iam_role.agent[0].name

  tags = local.tags
}
