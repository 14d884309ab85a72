################################################################################
# Bucket
################################################################################

output "bucket" {
  description = "Name of the bucket; null if not created."
  value       = try(aws_s3_bucket.this[0].id, null)
}

output "bucket_arn" {
  description = "ARN of the bucket; null if not created."
  value       = try(aws_s3_bucket.this[0].arn, null)
}

output "store_url" {
  description = "For SPOT_WATCHDOG_CHECKPOINT_STORE; null if not created."
  value       = try("s3://${aws_s3_bucket.this[0].id}", null)
}
