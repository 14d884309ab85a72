variable "create" {
  description = "Whether anything is created."
  type        = bool
  default     = true
}

variable "name" {
  description = "Name of the deployment; the roles are <name>-service and <name>-agent."
  type        = string
}

variable "tags" {
  description = "Further tags for every resource; the deployment's own tags win."
  type        = map(string)
  default     = {}
}

variable "launch_template_ids" {
  description = "Launch templates that jobs may name. The service may launch from these and from nothing else."
  type        = list(string)

  validation {
    condition     = length(var.launch_template_ids) > 0
    error_message = "Name at least one launch template: without one the service may launch nothing, and no job can be moved."
  }
}

variable "subnet_ids" {
  description = "Subnets that instances may be launched in; null allows every subnet of the account in this Region, and the service uses those of the default VPC."
  type        = list(string)
  default     = null
}

variable "allow_on_demand" {
  description = "Whether the service may launch On-Demand instances for jobs that list that market."
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

variable "checkpoint_bucket" {
  description = "Bucket that holds the checkpoints; null names it <name>-checkpoints-<account>-<region>."
  type        = string
  default     = null
}
