//! The table `api_keys`.

use super::{Store, new_id};
use crate::clock;
use crate::error::Result;

impl Store {
    /// Whether the table contains a key.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn has_api_key(&self) -> Result<bool> {
        let found: Option<String> =
            sqlx::query_scalar("SELECT id FROM api_keys LIMIT 1").fetch_optional(&self.pool).await?;
        Ok(found.is_some())
    }

    /// Returns the tenant of the key with this hash.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn tenant_for_key(&self, hash: &str) -> Result<Option<String>> {
        let statement = "SELECT tenant_id FROM api_keys WHERE key_hash = $1";
        Ok(sqlx::query_scalar(statement).bind(hash).fetch_optional(&self.pool).await?)
    }

    /// Inserts a key. The label is for its operator.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
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

#[cfg(test)]
mod tests {
    use super::super::testing::stores;

    #[tokio::test]
    async fn key_belongs_to_its_tenant() {
        for store in stores().await {
            assert!(!store.has_api_key().await.unwrap());
            store.insert_api_key("t", "hash", "label").await.unwrap();
            assert!(store.has_api_key().await.unwrap());
            assert_eq!(store.tenant_for_key("hash").await.unwrap().as_deref(), Some("t"));
            assert!(store.tenant_for_key("other").await.unwrap().is_none());
            assert!(store.insert_api_key("t", "hash", "again").await.is_err());
        }
    }
}
