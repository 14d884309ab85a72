################################################################################
# Service role
################################################################################

output "service_role_arn" {
  description = "ARN of the service's role; null if not created."
  value       = try(aws_iam_role.service[0].arn, null)
}

################################################################################
# Agent role
################################################################################

output "agent_role_arn" {
  description = "ARN of the agent's role; null if not created."
  value       = try(aws_iam_role.agent[0].arn, null)
}

output "agent_instance_profile_name" {
  description = "Instance profile for the launch templates; null if not created."
  value       = try(aws_iam_instance_profile.agent[0].name, null)
}

output "agent_instance_profile_arn" {
  description = "ARN of the instance profile; null if not created."
  value       = try(aws_iam_instance_profile.agent[0].arn, null)
}
