data "aws_region" "current" {}

module "interruption_queue" {
  source = "./modules/interruption-queue"

  create                    = var.create
  name                      = var.name
  tags                      = var.tags
  enabled_events            = var.enabled_events
  message_retention_seconds = var.message_retention_seconds
}

module "checkpoints" {
  source = "./modules/checkpoints"

  create            = var.create && var.create_checkpoint_bucket
  name              = var.name
  tags              = var.tags
  bucket            = var.checkpoint_bucket
  head_history_days = var.head_history_days
}

module "iam" {
  source = "./modules/iam"

  create                 = var.create
  name                   = var.name
  tags                   = var.tags
  launch_template_ids    = var.launch_template_ids
  subnet_ids             = var.subnet_ids
  allow_on_demand        = var.allow_on_demand
  service_principal_arns = var.service_principal_arns
  checkpoint_bucket      = var.checkpoint_bucket
}
