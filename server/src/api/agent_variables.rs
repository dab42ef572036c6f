//! The variables of agents in the database: their names, and their values encrypted as one text.

use super::App;
use super::error::ApiError;
use super::variables::Variables;
use crate::cipher::CredentialCipher;
use crate::error::{Context, Result};
use crate::store::{Agent, Store};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The text in the database if there are variables.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedVariables {
    names: Vec<String>,
    sealed: String,
}

/// Returns the text for the database, `{}` without variables.
///
/// # Errors
/// Fails if the kernel returns no random bytes.
pub(super) fn seal(
    cipher: &CredentialCipher,
    tenant: &str,
    agent: &str,
    variables: &Variables,
) -> Result<String> {
    if variables.is_empty() {
        return Ok("{}".into());
    }
    let sealed = cipher.seal_variables(&owner(tenant, agent), &json!(variables).to_string())?;
    Ok(json!(SealedVariables { names: variables.keys().cloned().collect(), sealed }).to_string())
}

/// Returns the variables of an agent.
///
/// # Errors
/// 500 if the key of the server is another one than when they were encrypted.
pub(super) fn open(app: &App, agent: &Agent) -> std::result::Result<Variables, ApiError> {
    open_with(&app.credential_cipher, agent).map_err(|_| {
        ApiError::internal(format!(
            "Cannot decrypt the variables of agent \"{}\": the key of the server has changed. Deploy it with its variables again",
            agent.name
        ))
    })
}

fn open_with(cipher: &CredentialCipher, agent: &Agent) -> Result<Variables> {
    let text = match serde_json::from_str::<SealedVariables>(&agent.env) {
        Ok(stored) => cipher.open_variables(&owner(&agent.tenant_id, &agent.name), &stored.sealed)?,
        // As servers before this encryption wrote them.
        Err(_) => agent.env.clone(),
    };
    serde_json::from_str(&text).context(|| "cannot parse variables")
}

/// The names of the variables in this text of the database.
pub(super) fn names(stored: &str) -> Vec<String> {
    match serde_json::from_str::<SealedVariables>(stored) {
        Ok(sealed) => sealed.names,
        Err(_) => serde_json::from_str::<Variables>(stored).unwrap_or_default().into_keys().collect(),
    }
}

/// Encrypts the variables that an earlier server wrote without encryption.
///
/// # Errors
/// Fails if the database cannot be read or written.
pub(crate) async fn seal_stored_variables(store: &Store, cipher: &CredentialCipher) -> Result<()> {
    for agent in store.agents_of_all_tenants().await? {
        if let Ok(plain) = serde_json::from_str::<Variables>(&agent.env)
            && !plain.is_empty()
        {
            let sealed = seal(cipher, &agent.tenant_id, &agent.name, &plain)?;
            store.replace_variables(&agent, &sealed).await?;
        }
    }
    Ok(())
}

/// The owner of the encrypted text: the names of tenants have no `/`.
fn owner(tenant: &str, agent: &str) -> String {
    format!("variables/{tenant}/{agent}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Deployment, testing::stores};

    fn deployment<'a>(name: &'a str, env: &'a str) -> Deployment<'a> {
        Deployment { tenant: "t", name, path: "/", has_files: true, env: Some(env) }
    }

    #[tokio::test]
    async fn variables_of_an_earlier_server_are_encrypted_once() {
        let cipher = CredentialCipher::with_secret("secret");
        let variables = Variables::from([("B".into(), "s3cret".into()), ("names".into(), "x".into())]);
        for store in stores().await {
            let plain = store.deploy(&deployment("a", &json!(variables).to_string())).await.unwrap();
            assert_eq!(open_with(&cipher, &plain).unwrap(), variables);
            assert_eq!(names(&plain.env), ["B", "names"]);
            store.deploy(&deployment("none", "{}")).await.unwrap();
            seal_stored_variables(&store, &cipher).await.unwrap();
            let sealed = store.agent("t", "a").await.unwrap().unwrap();
            assert!(!sealed.env.contains("s3cret"), "{}", sealed.env);
            assert_eq!(sealed.updated_at, plain.updated_at);
            assert_eq!(open_with(&cipher, &sealed).unwrap(), variables);
            assert_eq!(names(&sealed.env), ["B", "names"]);
            seal_stored_variables(&store, &cipher).await.unwrap();
            assert_eq!(store.agent("t", "a").await.unwrap().unwrap().env, sealed.env);
            assert_eq!(store.agent("t", "none").await.unwrap().unwrap().env, "{}");
            assert!(open_with(&CredentialCipher::with_secret("other"), &sealed).is_err());
        }
    }
}
