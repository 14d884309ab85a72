variable "name" {
  description = "Name of the deployment, as in SPOT_WATCHDOG_DEPLOYMENT. It names the resources, is the value of the tag spot-watchdog:deployment and the first part of every checkpoint key."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,18}[a-z0-9]$", var.name))
    error_message = "A deployment's name has 2 to 20 characters: lower-case letters, digits and hyphens, a letter first, no hyphen last. It becomes part of a bucket's name, which has at most 63."
  }
}

variable "partition" {
  description = "AWS partition: aws, aws-cn or aws-us-gov."
  type        = string
  default     = "aws"

  validation {
    condition     = startswith(var.partition, "aws")
    error_message = "A partition is the second part of an ARN: aws, aws-cn, aws-us-gov."
  }
}

variable "region" {
  description = "Region of the deployment, e.g. us-east-1."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2,}(-[a-z]+)+-[0-9]+$", var.region))
    error_message = "This is a Region, like us-east-1, not an Availability Zone (us-east-1a) and not a zone id (use1-az4)."
  }
}

variable "account_id" {
  description = "Account of the deployment, 12 digits."
  type        = string

  validation {
    condition     = can(regex("^[0-9]{12}$", var.account_id))
    error_message = "An account id has 12 digits; keep it a string, a number loses its leading zeros."
  }
}

variable "enabled_events" {
  description = "What EC2 says that reaches the queue: spot_interruption (always), rebalance_recommendation, instance_state_change."
  type        = set(string)
  default     = ["spot_interruption", "rebalance_recommendation", "instance_state_change"]

  validation {
    condition     = contains(var.enabled_events, "spot_interruption")
    error_message = "spot_interruption cannot be switched off: it is the notice that the service exists for."
  }

  validation {
    condition     = length(setsubtract(var.enabled_events, ["spot_interruption", "rebalance_recommendation", "instance_state_change"])) == 0
    error_message = "Known events: spot_interruption, rebalance_recommendation, instance_state_change."
  }
}

variable "checkpoint_bucket" {
  description = "Bucket that holds the checkpoints; null names it <name>-checkpoints-<account>-<region>."
  type        = string
  default     = null

  validation {
    condition     = var.checkpoint_bucket == null ? true : can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.checkpoint_bucket))
    error_message = "This is a bucket's name alone, without s3:// and without a prefix: 3 to 63 lower-case letters, digits, dots and hyphens."
  }

  validation {
    condition     = var.checkpoint_bucket == null ? true : !endswith(var.checkpoint_bucket, "--x-s3")
    error_message = "A directory bucket (S3 Express One Zone) lives in one Availability Zone: the checkpoint would be out of reach in just the outage that a job must survive."
  }
}

variable "launch_template_ids" {
  description = "Launch templates that jobs may name. The service may launch from these and from nothing else."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.launch_template_ids : can(regex("^lt-[0-9a-f]{8,17}$", id))])
    error_message = "Give launch templates by id (lt-0123456789abcdef0): IAM knows them by nothing else."
  }
}

variable "subnet_ids" {
  description = "Subnets that instances may be launched in; null allows every subnet of the account in this Region, and the service uses those of the default VPC. One per Availability Zone that jobs may move to."
  type        = list(string)
  default     = null

  validation {
    condition     = var.subnet_ids == null ? true : alltrue([for id in var.subnet_ids : can(regex("^subnet-[0-9a-f]{8,17}$", id))])
    error_message = "Give subnets by id: subnet-0123456789abcdef0."
  }

  validation {
    condition     = var.subnet_ids == null ? true : length(var.subnet_ids) > 0
    error_message = "An empty list of subnets leaves nowhere to launch; null allows every subnet."
  }
}

variable "allow_on_demand" {
  description = "Whether the service may launch On-Demand instances for jobs that list that market. With false, IAM refuses them, whatever a job says."
  type        = bool
  default     = true
}

variable "service_principal_arns" {
  description = "IAM roles or users that may assume the service's role; empty: tasks of Amazon ECS in this account."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.service_principal_arns : can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/.+$", arn))])
    error_message = "Name roles or users by their full ARN, e.g. arn:aws:iam::111122223333:role/watchdog-host. Neither a wildcard nor a whole account is least privilege."
  }
}
