variable "create" {
  description = "Whether anything is created."
  type        = bool
  default     = true
}

variable "name" {
  description = "Name of the deployment; the queue is called the same."
  type        = string
}

variable "tags" {
  description = "Further tags for every resource; the deployment's own tags win."
  type        = map(string)
  default     = {}
}

variable "enabled_events" {
  description = "What EC2 says that reaches the queue: spot_interruption (always), rebalance_recommendation, instance_state_change."
  type        = set(string)
  default     = ["spot_interruption", "rebalance_recommendation", "instance_state_change"]
  nullable    = false
}

variable "message_retention_seconds" {
  description = "Seconds that a message waits for the service. It outlives a deployment of the service; a late message still tells which instance went."
  type        = number
  default     = 86400

  validation {
    condition     = var.message_retention_seconds >= 3600 && var.message_retention_seconds <= 1209600
    error_message = "Between 3600 (an hour: a bad deployment must not lose notices) and 1209600 (14 days, the most that SQS keeps)."
  }
}
