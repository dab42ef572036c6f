//! API keys.

use super::{Store, new_id};
use crate::clock;
use crate::error::Result;

impl Store {
    /// Whether there is any key.
    ///
    /// # Errors
    /// The database fails.
    pub async fn has_api_key(&self) -> Result<bool> {
        let found: Option<String> =
            sqlx::query_scalar("SELECT id FROM api_keys LIMIT 1").fetch_optional(&self.pool).await?;
        Ok(found.is_some())
    }

    /// The tenant of the key with this hash.
    ///
    /// # Errors
    /// The database fails.
    pub async fn tenant_of_key(&self, hash: &str) -> Result<Option<String>> {
        let statement = "SELECT tenant_id FROM api_keys WHERE key_hash = $1";
        Ok(sqlx::query_scalar(statement).bind(hash).fetch_optional(&self.pool).await?)
    }

    /// Adds a key.
    ///
    /// # Errors
    /// The database fails.
    pub async fn insert_api_key(&self, tenant: &str, hash: &str, label: &str) -> Result<()> {
        let statement =
            "INSERT INTO api_keys (id, tenant_id, key_hash, label, created_at) VALUES ($1, $2, $3, $4, $5)";
        sqlx::query(statement)
            .bind(new_id())
            .bind(tenant)
            .bind(hash)
            .bind(label)
            .bind(clock::now())
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
