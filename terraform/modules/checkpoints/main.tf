data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

module "contract" {
  source = "../contract"

  name              = var.name
  partition         = data.aws_partition.current.partition
  region            = data.aws_region.current.id
  account_id        = data.aws_caller_identity.current.account_id
  checkpoint_bucket = var.bucket
}

locals {
  tags = merge(var.tags, module.contract.tags)
}

################################################################################
# Bucket
################################################################################

resource "aws_s3_bucket" "this" {
  count = var.create ? 1 : 0

  bucket        = module.contract.names.checkpoint_bucket
  force_destroy = false # weeks of GPU time may be in it

  tags = local.tags
}

resource "aws_s3_bucket_ownership_controls" "this" {
  count = var.create ? 1 : 0

  bucket = aws_s3_bucket.this[0].id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_public_access_block" "this" {
  count = var.create ? 1 : 0

  bucket                  = aws_s3_bucket.this[0].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  count = var.create ? 1 : 0

  bucket = aws_s3_bucket.this[0].id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  count = var.create ? 1 : 0

  bucket = aws_s3_bucket.this[0].id
  policy = module.contract.bucket_policy

  # S3 refuses two changes of a bucket's access at once.
  depends_on = [aws_s3_bucket_public_access_block.this]
}

################################################################################
# Versions and their end
################################################################################

resource "aws_s3_bucket_versioning" "this" {
  count = var.create ? 1 : 0

  bucket = aws_s3_bucket.this[0].id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  count = var.create ? 1 : 0

  bucket = aws_s3_bucket.this[0].id

  # An instance that is reclaimed in the middle of an upload leaves parts that are billed and listed nowhere.
  rule {
    id     = "abort-unfinished-uploads"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }

  # What is kept for days is the history of HEAD: who owned a job, and since when. Lifecycle filters know no suffix, so it is told by size.
  rule {
    id     = "forget-old-heads"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.head_history_days
    }

    expiration {
      expired_object_delete_marker = true
    }
  }

  # The agent deletes checkpoints that newer ones have replaced; for a day that can be undone. Where two rules meet, S3 takes the earlier end.
  rule {
    id     = "forget-deleted-checkpoints"
    status = "Enabled"

    filter {
      object_size_greater_than = 131072 # bytes; HEAD has a few thousand
    }

    noncurrent_version_expiration {
      noncurrent_days = 1
    }
  }

  # Rules about versions need versioning to be on.
  depends_on = [aws_s3_bucket_versioning.this]
}
