output "service_environment" {
  description = "What this module knows of the service's environment: give it to the container or unit that runs `spot-watchdog serve`. Empty if not created."
  value = var.create ? merge(
    {
      SPOT_WATCHDOG_DEPLOYMENT       = var.name
      SPOT_WATCHDOG_AWS_REGION       = data.aws_region.current.id
      SPOT_WATCHDOG_QUEUE_URL        = module.interruption_queue.queue_url
      SPOT_WATCHDOG_CHECKPOINT_STORE = var.create_checkpoint_bucket ? module.checkpoints.store_url : "s3://${var.checkpoint_bucket}"
      SPOT_WATCHDOG_LAUNCH_TEMPLATES = jsonencode(var.launch_template_ids)
    },
    var.subnet_ids == null ? {} : { SPOT_WATCHDOG_SUBNETS = jsonencode(var.subnet_ids) },
  ) : {}

  precondition {
    condition     = var.create_checkpoint_bucket || var.checkpoint_bucket != null
    error_message = "With create_checkpoint_bucket = false, name the bucket that the checkpoints go to in checkpoint_bucket."
  }
}

################################################################################
# Interruption queue
################################################################################

output "queue_url" {
  description = "URL of the interruption queue; null if not created."
  value       = module.interruption_queue.queue_url
}

output "dead_letter_queue_arn" {
  description = "ARN of the dead-letter queue; null if not created. Alarm on any message in it."
  value       = module.interruption_queue.dead_letter_queue_arn
}

################################################################################
# IAM
################################################################################

output "service_role_arn" {
  description = "Role for the service: the task role on ECS, or the one your host assumes; null if not created."
  value       = module.iam.service_role_arn
}

output "agent_instance_profile_arn" {
  description = "Instance profile that the launch templates must name; null if not created."
  value       = module.iam.agent_instance_profile_arn
}

################################################################################
# Checkpoints
################################################################################

output "checkpoint_bucket" {
  description = "Name of the bucket; null if not created here."
  value       = module.checkpoints.bucket
}
