variable "create" {
  description = "Whether anything is created."
  type        = bool
  default     = true
}

variable "name" {
  description = "Name of the deployment: the first part of every key."
  type        = string
}

variable "tags" {
  description = "Further tags for every resource; the deployment's own tags win."
  type        = map(string)
  default     = {}
}

variable "bucket" {
  description = "Name of the bucket; null names it <name>-checkpoints-<account>-<region>."
  type        = string
  default     = null
}

variable "head_history_days" {
  description = "Days that replaced versions of HEAD, the fencing register, are kept: who owned a job, and since when."
  type        = number
  default     = 7

  validation {
    condition     = var.head_history_days >= 1 && floor(var.head_history_days) == var.head_history_days
    error_message = "Whole days, at least 1: S3 counts lifecycles in days."
  }
}
