mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  name = "demo"
}

run "the_bucket_is_private_guards_the_register_and_loses_no_checkpoint" {
  module {
    source = "./modules/checkpoints"
  }

  assert {
    condition     = aws_s3_bucket_versioning.this[0].versioning_configuration[0].status == "Enabled"
    error_message = "A replaced HEAD must be found again."
  }

  assert {
    condition     = one(one(aws_s3_bucket_server_side_encryption_configuration.this[0].rule).apply_server_side_encryption_by_default).sse_algorithm == "AES256"
    error_message = "Checkpoints are encrypted at rest."
  }

  assert {
    condition = alltrue([
      aws_s3_bucket_public_access_block.this[0].block_public_acls,
      aws_s3_bucket_public_access_block.this[0].block_public_policy,
      aws_s3_bucket_public_access_block.this[0].ignore_public_acls,
      aws_s3_bucket_public_access_block.this[0].restrict_public_buckets,
    ])
    error_message = "A model's weights are nobody else's business."
  }

  assert {
    condition     = !aws_s3_bucket.this[0].force_destroy
    error_message = "`terraform destroy` must not take weeks of training with it."
  }

  assert {
    condition     = toset([for statement in jsondecode(aws_s3_bucket_policy.this[0].policy).Statement : statement.Sid]) == toset(["TlsOnly", "NoBlindWriteToTheFencingRegister", "ManifestsAreWrittenOnce"])
    error_message = "The bucket itself must guard the fencing register."
  }

  assert {
    condition     = alltrue([for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : alltrue([for expiration in rule.expiration : coalesce(expiration.days, 0) == 0 && coalesce(expiration.date, "never") == "never"])])
    error_message = "A lifecycle rule cannot tell the newest checkpoint from an old one, so none may expire objects."
  }

  assert {
    condition = (
      [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule.abort_incomplete_multipart_upload[0].days_after_initiation if rule.id == "abort-unfinished-uploads"] == [1]
      && [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule.noncurrent_version_expiration[0].noncurrent_days if rule.id == "forget-old-heads"] == [7]
      && [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule.noncurrent_version_expiration[0].noncurrent_days if rule.id == "forget-deleted-checkpoints"] == [1]
    )
    error_message = "Unfinished uploads and deleted checkpoints go after a day, old HEADs after a week."
  }
}

run "half_a_day_of_history_is_refused" {
  command = plan

  module {
    source = "./modules/checkpoints"
  }

  variables {
    head_history_days = 0.5
  }

  expect_failures = [var.head_history_days]
}
