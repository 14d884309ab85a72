################################################################################
# Queue
################################################################################

output "queue_url" {
  description = "URL of the interruption queue, for SPOT_WATCHDOG_QUEUE_URL; null if not created."
  value       = try(aws_sqs_queue.this[0].url, null)
}

output "queue_arn" {
  description = "ARN of the interruption queue; null if not created."
  value       = try(aws_sqs_queue.this[0].arn, null)
}

################################################################################
# Dead-letter queue
################################################################################

output "dead_letter_queue_url" {
  description = "URL of the dead-letter queue; null if not created."
  value       = try(aws_sqs_queue.dead_letters[0].url, null)
}

output "dead_letter_queue_arn" {
  description = "ARN of the dead-letter queue; null if not created. Alarm on any message in it."
  value       = try(aws_sqs_queue.dead_letters[0].arn, null)
}

################################################################################
# Rules
################################################################################

output "rule_arns" {
  description = "ARN of each EventBridge rule, by event."
  value       = { for event, rule in aws_cloudwatch_event_rule.this : event => rule.arn }
}
