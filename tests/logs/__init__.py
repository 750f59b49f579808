"""The archive against a real SeaweedFS, a real Valkey and hostile bytes."""
