output "names" {
  description = "Names of everything that a deployment owns."
  value       = local.names
}

output "arns" {
  description = "ARNs that follow from the names."
  value       = local.arns
}

output "tags" {
  description = "Tags that mark a resource as this deployment's; the service puts the same on its instances."
  value       = local.tags
}

output "event_patterns" {
  description = "EventBridge pattern (JSON) per enabled event."
  value       = { for event, pattern in local.event_patterns : event => jsonencode(pattern) }
}

output "service_policy" {
  description = "What the service may do, as an IAM policy (JSON)."
  value       = jsonencode({ Version = "2012-10-17", Statement = local.service_statements })
}

output "service_trust_policy" {
  description = "Who may assume the service's role (JSON)."
  value = (
    length(var.service_principal_arns) == 0
    ? jsonencode({ Version = "2012-10-17", Statement = [local.ecs_trust] })
    : jsonencode({ Version = "2012-10-17", Statement = [local.principals_trust] })
  )
}

output "agent_policy" {
  description = "What the agent on an instance may do, as an IAM policy (JSON)."
  value       = jsonencode({ Version = "2012-10-17", Statement = local.agent_statements })
}

output "agent_trust_policy" {
  description = "Who may assume the agent's role: EC2 instances (JSON)."
  value       = jsonencode({ Version = "2012-10-17", Statement = [local.agent_trust] })
}

output "queue_policy" {
  description = "Queue policy of the interruption queue (JSON)."
  value       = jsonencode({ Version = "2012-10-17", Statement = local.queue_statements.queue })
}

output "dead_letter_queue_policy" {
  description = "Queue policy of the dead-letter queue (JSON)."
  value       = jsonencode({ Version = "2012-10-17", Statement = local.queue_statements.dead_letter_queue })
}

output "bucket_policy" {
  description = "Bucket policy of the checkpoint bucket (JSON)."
  value       = jsonencode({ Version = "2012-10-17", Statement = local.bucket_statements })
}
