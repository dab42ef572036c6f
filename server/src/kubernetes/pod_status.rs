//! What the API says of a pod (Kubernetes API, PodStatus).

use serde_json::Value;

/// How far a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PodStatus {
    /// Its agent has not been started; with the reason, if there is one.
    Starting(Option<String>),
    /// Its agent runs.
    Running,
    /// It has ended, or is being deleted; with the reason.
    Ended(String),
}

impl PodStatus {
    /// Reads the status of a pod whose agent runs in this container.
    pub(super) fn of(pod: &Value, container: &str) -> Self {
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            return PodStatus::Ended("the pod is being deleted".to_owned());
        }
        let status = &pod["status"];
        let containers = |list: &str| status[list].as_array().cloned().unwrap_or_default();
        let agent = containers("containerStatuses").into_iter().find(|found| found["name"] == container);
        let state = agent.map_or(Value::Null, |mut found| found["state"].take());
        if let Some(text) = terminated(&state) {
            return PodStatus::Ended(format!("the container {container} {text}"));
        }
        if matches!(status["phase"].as_str(), Some("Failed" | "Succeeded")) {
            let failed = containers("initContainerStatuses").into_iter().find_map(|init| {
                let text =
                    terminated(&init["state"]).filter(|_| init["state"]["terminated"]["exitCode"] != 0);
                Some(format!("the container {} {}", init["name"].as_str()?, text?))
            });
            let own = || reason(status).unwrap_or_else(|| "the pod has ended".to_owned());
            return PodStatus::Ended(failed.unwrap_or_else(own));
        }
        if state["running"].is_object() {
            return PodStatus::Running;
        }
        let unscheduled = status["conditions"].as_array().and_then(|conditions| {
            let condition = conditions.iter().find(|condition| condition["type"] == "PodScheduled")?;
            reason(condition).filter(|_| condition["status"] == "False")
        });
        let waiting = containers("initContainerStatuses").into_iter().map(|mut init| init["state"].take());
        let why = waiting.chain([state]).find_map(|state| reason(&state["waiting"]));
        PodStatus::Starting(unscheduled.or(why).or_else(|| reason(status)))
    }
}

/// How a container has ended, if it has.
fn terminated(state: &Value) -> Option<String> {
    let ended = state["terminated"].as_object()?;
    let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
    let reason = reason(&state["terminated"]).map(|reason| format!(" ({reason})")).unwrap_or_default();
    Some(format!("exited with {code}{reason}"))
}

/// `REASON: MESSAGE`, as far as they are given.
fn reason(of: &Value) -> Option<String> {
    let part = |name: &str| of[name].as_str().map(str::trim).filter(|text| !text.is_empty());
    match (part("reason"), part("message")) {
        (Some(reason), Some(message)) => Some(format!("{reason}: {message}")),
        (one, other) => one.or(other).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(status: Value) -> PodStatus {
        PodStatus::of(&json!({ "metadata": {}, "status": status }), "agent")
    }

    fn agent(state: Value) -> Value {
        json!({ "phase": "Pending", "containerStatuses": [
            { "name": "other", "state": { "running": {} } },
            { "name": "agent", "state": state },
        ] })
    }

    #[test]
    fn start_is_that_of_the_agent() {
        assert_eq!(status(json!({})), PodStatus::Starting(None));
        assert_eq!(status(agent(json!({ "running": { "startedAt": "" } }))), PodStatus::Running);
        let waiting = json!({ "waiting": { "reason": "ErrImagePull", "message": "no such image" } });
        assert_eq!(
            status(agent(waiting.clone())),
            PodStatus::Starting(Some("ErrImagePull: no such image".into()))
        );
        let full = json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes" }] });
        assert_eq!(status(full), PodStatus::Starting(Some("Unschedulable: 0/3 nodes".into())));
        let of_init = json!({ "phase": "Pending", "initContainerStatuses": [{ "name": "i", "state": waiting }],
            "containerStatuses": [{ "name": "agent", "state": { "waiting": { "reason": "PodInitializing" } } }] });
        assert_eq!(status(of_init), PodStatus::Starting(Some("ErrImagePull: no such image".into())));
    }

    #[test]
    fn end_has_its_reason() {
        let ended = |state| match status(state) {
            PodStatus::Ended(why) => why,
            other => panic!("{other:?}"),
        };
        let exited = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
        assert_eq!(ended(agent(exited)), "the container agent exited with 137 (OOMKilled)");
        let evicted = json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "Node has no cpu" });
        assert_eq!(ended(evicted), "OutOfcpu: Node has no cpu");
        let init = json!({ "phase": "Failed", "initContainerStatuses": [
            { "name": "done", "state": { "terminated": { "exitCode": 0 } } },
            { "name": "files", "state": { "terminated": { "exitCode": 1, "reason": "Error" } } }] });
        assert_eq!(ended(init), "the container files exited with 1 (Error)");
        let mut pod = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        pod["status"] = agent(json!({ "running": {} }));
        assert_eq!(PodStatus::of(&pod, "agent"), PodStatus::Ended("the pod is being deleted".into()));
    }
}
