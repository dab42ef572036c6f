//! The table `credentials`.

use super::Store;
use crate::cipher::SealedText;
use crate::clock;
use crate::error::Result;
use sqlx::FromRow;

/// A row of `credentials`.
#[derive(Debug, FromRow)]
pub struct StoredCredential {
    /// A UUID.
    pub id: String,
    /// The tenant that owns the credential.
    pub tenant_id: String,
    /// The service of the credential, such as `anthropic`.
    #[sqlx(rename = "type")]
    pub kind: String,
    encrypted_key: String,
    iv: String,
    auth_tag: String,
    salt: String,
    /// For the operator.
    pub label: String,
    /// 1 if sessions can use the credential.
    pub active: i64,
    /// Creation time, as a timestamp of [`clock`].
    pub created_at: String,
    /// The time at which a session last started with the credential.
    pub last_used_at: Option<String>,
}

impl StoredCredential {
    /// Returns the encrypted secret.
    pub fn sealed(&self) -> SealedText {
        SealedText {
            ciphertext: self.encrypted_key.clone(),
            nonce: self.iv.clone(),
            tag: self.auth_tag.clone(),
            salt: self.salt.clone(),
        }
    }
}

/// A credential to insert.
#[derive(Debug)]
pub struct NewCredential<'a> {
    /// The id of the credential.
    pub id: &'a str,
    /// The tenant that owns the credential.
    pub tenant: &'a str,
    /// The service of the credential.
    pub kind: &'a str,
    /// The encrypted secret.
    pub sealed: &'a SealedText,
    /// For the operator.
    pub label: &'a str,
}

impl Store {
    /// Inserts an active credential.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn insert_credential(&self, new: &NewCredential<'_>) -> Result<StoredCredential> {
        let statement = "INSERT INTO credentials (id, tenant_id, type, encrypted_key, iv, auth_tag, salt, label, \
             active, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9) RETURNING *";
        Ok(sqlx::query_as(statement)
            .bind(new.id)
            .bind(new.tenant)
            .bind(new.kind)
            .bind(&new.sealed.ciphertext)
            .bind(&new.sealed.nonce)
            .bind(&new.sealed.tag)
            .bind(&new.sealed.salt)
            .bind(new.label)
            .bind(clock::now())
            .fetch_one(&self.writer)
            .await?)
    }

    /// Lists the credentials of a tenant, the newest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn credentials(&self, tenant: &str) -> Result<Vec<StoredCredential>> {
        let statement = "SELECT * FROM credentials WHERE tenant_id = $1 ORDER BY created_at DESC, id";
        Ok(sqlx::query_as(statement).bind(tenant).fetch_all(&self.pool).await?)
    }

    /// Returns an active credential of a tenant.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn credential(&self, tenant: &str, id: &str) -> Result<Option<StoredCredential>> {
        let statement = "SELECT * FROM credentials WHERE tenant_id = $1 AND id = $2 AND active = 1";
        Ok(sqlx::query_as(statement).bind(tenant).bind(id).fetch_optional(&self.pool).await?)
    }

    /// Stores the current time as that of the last use of a credential.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_credential_used(&self, tenant: &str, id: &str) -> Result<()> {
        let statement = "UPDATE credentials SET last_used_at = $3 WHERE tenant_id = $1 AND id = $2";
        sqlx::query(statement).bind(tenant).bind(id).bind(clock::now()).execute(&self.writer).await?;
        Ok(())
    }

    /// Deletes a credential of a tenant. Returns whether it existed.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn delete_credential(&self, tenant: &str, id: &str) -> Result<bool> {
        let statement = "DELETE FROM credentials WHERE tenant_id = $1 AND id = $2";
        let deleted = sqlx::query(statement).bind(tenant).bind(id).execute(&self.writer).await?;
        Ok(deleted.rows_affected() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::stores;
    use super::*;

    #[tokio::test]
    async fn credentials_are_separated_by_tenant() {
        for store in stores().await {
            let text = |text: &str| text.to_owned();
            let sealed =
                SealedText { ciphertext: text("c"), nonce: text("n"), tag: text("t"), salt: text("s") };
            for (id, tenant) in [("1", "one"), ("2", "two")] {
                let new = NewCredential { id, tenant, kind: "openai", sealed: &sealed, label: "l" };
                let stored = store.insert_credential(&new).await.unwrap();
                assert_eq!((stored.sealed(), stored.active, stored.last_used_at), (sealed.clone(), 1, None));
            }
            assert_eq!(store.credentials("one").await.unwrap().len(), 1);
            assert!(store.credential("one", "2").await.unwrap().is_none());
            assert!(!store.delete_credential("one", "2").await.unwrap());
            store.set_credential_used("one", "2").await.unwrap();
            assert!(store.credential("two", "2").await.unwrap().unwrap().last_used_at.is_none());
            store.set_credential_used("two", "2").await.unwrap();
            assert!(store.credential("two", "2").await.unwrap().unwrap().last_used_at.is_some());
            assert!(store.delete_credential("two", "2").await.unwrap());
            assert!(store.credentials("two").await.unwrap().is_empty());
        }
    }
}
