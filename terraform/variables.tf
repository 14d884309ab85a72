variable "create" {
  description = "Whether anything is created."
  type        = bool
  default     = true
}

variable "name" {
  description = "Name of the deployment, as in SPOT_WATCHDOG_DEPLOYMENT: 2 to 20 lower-case letters, digits and hyphens."
  type        = string
}

variable "tags" {
  description = "Further tags for every resource; the deployment's own tags win."
  type        = map(string)
  default     = {}
}

################################################################################
# Interruption queue
################################################################################

variable "enabled_events" {
  description = "What EC2 says that reaches the queue: spot_interruption (always), rebalance_recommendation, instance_state_change."
  type        = set(string)
  default     = ["spot_interruption", "rebalance_recommendation", "instance_state_change"]
  nullable    = false
}

variable "message_retention_seconds" {
  description = "Seconds that a message waits for the service, 3600 to 1209600."
  type        = number
  default     = 86400
  nullable    = false
}

################################################################################
# IAM
################################################################################

variable "launch_template_ids" {
  description = "Launch templates that jobs may name, by id. The service may launch from these and from nothing else."
  type        = list(string)
}

variable "subnet_ids" {
  description = "Subnets that instances may be launched in, one per Availability Zone that jobs may move to; null allows every subnet of the account in this Region, and the service uses those of the default VPC."
  type        = list(string)
  default     = null
}

variable "allow_on_demand" {
  description = "Whether the service may launch On-Demand instances for jobs that list that market. With false, IAM refuses them, whatever a job says."
  type        = bool
  default     = true
  nullable    = false
}

variable "service_principal_arns" {
  description = "IAM roles or users that may assume the service's role; empty: tasks of Amazon ECS in this account."
  type        = list(string)
  default     = []
  nullable    = false
}

################################################################################
# Checkpoints
################################################################################

variable "create_checkpoint_bucket" {
  description = "Whether the bucket is created. With false, name one that exists: it must be this account's, in this Region, and honour conditional writes."
  type        = bool
  default     = true
  nullable    = false
}

variable "checkpoint_bucket" {
  description = "Name of the bucket; null names it <name>-checkpoints-<account>-<region>."
  type        = string
  default     = null
}

variable "head_history_days" {
  description = "Days that replaced versions of HEAD, the fencing register, are kept."
  type        = number
  default     = 7
  nullable    = false
}
