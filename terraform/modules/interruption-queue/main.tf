data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

module "contract" {
  source = "../contract"

  name           = var.name
  partition      = data.aws_partition.current.partition
  region         = data.aws_region.current.id
  account_id     = data.aws_caller_identity.current.account_id
  enabled_events = var.enabled_events
}

locals {
  tags     = merge(var.tags, module.contract.tags)
  patterns = var.create ? module.contract.event_patterns : {}
}

################################################################################
# Queue
################################################################################

resource "aws_sqs_queue" "this" {
  count = var.create ? 1 : 0

  name                       = module.contract.names.queue
  message_retention_seconds  = var.message_retention_seconds
  receive_wait_time_seconds  = 20
  visibility_timeout_seconds = 30   # a message is deleted as soon as its intent is stored: milliseconds
  sqs_managed_sse_enabled    = true # EventBridge can write to it without a right on a key

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters[0].arn
    maxReceiveCount     = 5
  })

  tags = local.tags
}

resource "aws_sqs_queue_policy" "this" {
  count = var.create ? 1 : 0

  queue_url = aws_sqs_queue.this[0].url
  policy    = module.contract.queue_policy
}

################################################################################
# Dead-letter queue
################################################################################

resource "aws_sqs_queue" "dead_letters" {
  count = var.create ? 1 : 0

  name                      = module.contract.names.dead_letter_queue
  message_retention_seconds = 1209600 # 14 days, the most there is: a person reads these
  sqs_managed_sse_enabled   = true

  tags = local.tags
}

resource "aws_sqs_queue_policy" "dead_letters" {
  count = var.create ? 1 : 0

  queue_url = aws_sqs_queue.dead_letters[0].url
  policy    = module.contract.dead_letter_queue_policy
}

resource "aws_sqs_queue_redrive_allow_policy" "dead_letters" {
  count = var.create ? 1 : 0

  queue_url = aws_sqs_queue.dead_letters[0].url
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.this[0].arn]
  })
}

################################################################################
# Rules
################################################################################

resource "aws_cloudwatch_event_rule" "this" {
  for_each = local.patterns

  name          = module.contract.names.interruption_rules[each.key]
  description   = "Spot Watchdog ${var.name}: ${replace(each.key, "_", " ")}"
  event_pattern = each.value

  tags = local.tags
}

resource "aws_cloudwatch_event_target" "this" {
  for_each = local.patterns

  rule      = aws_cloudwatch_event_rule.this[each.key].name
  target_id = "interruption-queue"
  arn       = aws_sqs_queue.this[0].arn

  # EventBridge would try for a day. A notice that is five minutes old is about an instance that is gone.
  retry_policy {
    maximum_event_age_in_seconds = 300
    maximum_retry_attempts       = 185
  }

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters[0].arn
  }

  # Without the policy the first events would be refused, and EventBridge does not try those again.
  depends_on = [aws_sqs_queue_policy.this, aws_sqs_queue_policy.dead_letters]
}
