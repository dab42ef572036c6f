//! The table `api_keys`.

use super::{Store, new_id};
use crate::api_key::KeyScope;
use crate::clock;
use crate::error::{Error, Result};
use sqlx::{AssertSqlSafe, FromRow};

/// A row of `api_keys` without its hash.
#[derive(Debug)]
pub struct StoredKey {
    /// A UUID.
    pub id: String,
    /// The tenant that owns the key.
    pub tenant_id: String,
    /// For the operator.
    pub label: String,
    /// What requests with the key may do.
    pub scope: KeyScope,
    /// Creation time, as a timestamp of [`clock`].
    pub created_at: String,
}

#[derive(FromRow)]
struct StoredKeyRow {
    id: String,
    tenant_id: String,
    label: String,
    scope: String,
    created_at: String,
}

impl TryFrom<StoredKeyRow> for StoredKey {
    type Error = Error;

    fn try_from(row: StoredKeyRow) -> Result<Self> {
        let StoredKeyRow { id, tenant_id, label, scope, created_at } = row;
        Ok(StoredKey { id, tenant_id, label, scope: scope.parse()?, created_at })
    }
}

/// The result of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletedKey {
    /// The key was deleted.
    Deleted,
    /// The tenant has no key with this id.
    NotFound,
    /// The key remains: it is the last one with the scope `admin`.
    LastAdmin,
}

const COLUMNS: &str = "id, tenant_id, label, scope, created_at";

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

    /// Returns the key with this hash.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn find_api_key(&self, hash: &str) -> Result<Option<StoredKey>> {
        let statement = format!("SELECT {COLUMNS} FROM api_keys WHERE key_hash = $1");
        let row: Option<StoredKeyRow> =
            sqlx::query_as(AssertSqlSafe(statement)).bind(hash).fetch_optional(&self.pool).await?;
        row.map(StoredKey::try_from).transpose()
    }

    /// Lists the keys of a tenant, the oldest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn api_keys(&self, tenant: &str) -> Result<Vec<StoredKey>> {
        let statement =
            format!("SELECT {COLUMNS} FROM api_keys WHERE tenant_id = $1 ORDER BY created_at, id");
        let rows: Vec<StoredKeyRow> =
            sqlx::query_as(AssertSqlSafe(statement)).bind(tenant).fetch_all(&self.pool).await?;
        rows.into_iter().map(StoredKey::try_from).collect()
    }

    /// Inserts a key with a scope.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn create_api_key(
        &self,
        tenant: &str,
        hash: &str,
        label: &str,
        scope: KeyScope,
    ) -> Result<StoredKey> {
        let statement = format!(
            "INSERT INTO api_keys (id, tenant_id, key_hash, label, scope, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6) RETURNING {COLUMNS}"
        );
        let row: StoredKeyRow = sqlx::query_as(AssertSqlSafe(statement))
            .bind(new_id())
            .bind(tenant)
            .bind(hash)
            .bind(label)
            .bind(scope.to_string())
            .bind(clock::now())
            .fetch_one(&self.writer)
            .await?;
        row.try_into()
    }

    /// Deletes a key of a tenant. Unless `may_delete_last` is set, one key with the scope `admin` remains.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn delete_api_key(&self, tenant: &str, id: &str, may_delete_last: bool) -> Result<DeletedKey> {
        let mut transaction = self.writer.begin().await?;
        // Locks the rows, so that two requests do not delete the last two keys.
        sqlx::query("UPDATE api_keys SET scope = 'admin' WHERE tenant_id = $1 AND scope = 'admin'")
            .bind(tenant)
            .execute(&mut *transaction)
            .await?;
        let statement = "SELECT id, scope FROM api_keys WHERE tenant_id = $1";
        let keys: Vec<(String, String)> =
            sqlx::query_as(statement).bind(tenant).fetch_all(&mut *transaction).await?;
        let is_admin = |(_, scope): &&(String, String)| scope == "admin";
        let Some(key) = keys.iter().find(|(known, _)| known == id) else { return Ok(DeletedKey::NotFound) };
        if !may_delete_last && is_admin(&key) && keys.iter().filter(is_admin).count() == 1 {
            return Ok(DeletedKey::LastAdmin);
        }
        sqlx::query("DELETE FROM api_keys WHERE id = $1").bind(id).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(DeletedKey::Deleted)
    }

    /// Inserts a key with the scope `admin`. The label is for its operator.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn insert_api_key(&self, tenant: &str, hash: &str, label: &str) -> Result<()> {
        self.create_api_key(tenant, hash, label, KeyScope::Admin).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::stores;
    use super::*;

    #[tokio::test]
    async fn key_belongs_to_its_tenant() {
        for store in stores().await {
            assert!(!store.has_api_key().await.unwrap());
            store.insert_api_key("t", "hash", "label").await.unwrap();
            assert!(store.has_api_key().await.unwrap());
            let found = store.find_api_key("hash").await.unwrap().unwrap();
            assert_eq!((found.tenant_id.as_str(), found.scope), ("t", KeyScope::Admin));
            assert!(store.find_api_key("other").await.unwrap().is_none());
            assert!(store.insert_api_key("t", "hash", "again").await.is_err());
        }
    }

    #[tokio::test]
    async fn keys_are_listed_and_deleted_by_tenant() {
        for store in stores().await {
            store.insert_api_key("t", "1", "first").await.unwrap();
            let second = store.create_api_key("t", "2", "second", KeyScope::Read).await.unwrap();
            let found = store.find_api_key("2").await.unwrap().unwrap();
            assert_eq!(
                (found.id, found.scope, found.tenant_id.as_str()),
                (second.id.clone(), KeyScope::Read, "t")
            );
            let labels: Vec<_> =
                store.api_keys("t").await.unwrap().into_iter().map(|key| key.label).collect();
            assert_eq!(labels.len(), 2);
            assert!(store.api_keys("other").await.unwrap().is_empty());
            assert_eq!(store.delete_api_key("other", &second.id, true).await.unwrap(), DeletedKey::NotFound);
            assert_eq!(store.delete_api_key("t", &second.id, false).await.unwrap(), DeletedKey::Deleted);
            assert!(store.find_api_key("2").await.unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn last_admin_key_remains() {
        for store in stores().await {
            let mut ids = Vec::new();
            for (hash, scope) in [
                ("1", KeyScope::Admin),
                ("2", KeyScope::Admin),
                ("3", KeyScope::Agent),
                ("4", KeyScope::Admin),
            ] {
                ids.push(store.create_api_key("t", hash, "x", scope).await.unwrap().id);
            }
            store.insert_api_key("other", "5", "of another tenant").await.unwrap();
            let deletions = [0, 1, 3].map(|key| {
                let (store, id) = (Store::clone(&store), ids[key].clone());
                tokio::spawn(async move { store.delete_api_key("t", &id, false).await.unwrap() })
            });
            let mut refused = 0;
            for deletion in deletions {
                refused += usize::from(deletion.await.unwrap() == DeletedKey::LastAdmin);
            }
            assert_eq!(refused, 1);
            let last = store.api_keys("t").await.unwrap();
            let last = last.iter().find(|key| key.scope == KeyScope::Admin).unwrap();
            assert_eq!(store.delete_api_key("t", &last.id, true).await.unwrap(), DeletedKey::Deleted);
        }
    }
}
