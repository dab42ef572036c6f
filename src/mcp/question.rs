//! Calls that need the consent of a person: how the client is asked, by the protocol that it speaks.
//!
//! ```text
//! to 2025-11-25:    call ─> elicitation/create ─> answer ─> result
//! from 2026-07-28:  call ─> result "input_required" with a handle; the call again with the handle and the answer ─> result
//! ```

use crate::error::{Code, Error, Result};
use crate::sys::random;
use crate::text::hex;
use rmcp::model::{
    CallToolRequestParams, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequiredResult, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext};
use rmcp::{RoleServer, ServiceError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a person has for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Most questions that wait for an answer at a time, in one conversation.
const MAX_QUESTIONS: usize = 16;
/// The name of the question among those of one call.
const QUESTION: &str = "consent";

/// A question to a person.
#[derive(Debug)]
pub(crate) struct Question<P> {
    /// What is asked, with all that the person needs to decide.
    pub(crate) text: String,
    /// What a person can do instead if the client cannot ask.
    pub(crate) alternative: String,
    /// The call, which continues with the consent.
    pub(crate) pending: P,
}

impl<P> Question<P> {
    /// Asks the client.
    ///
    /// # Errors
    /// [`Code::Refused`] without consent, and if the client cannot ask; [`Code::System`] if it does not answer.
    pub(super) async fn ask(&self, context: &RequestContext<RoleServer>) -> Result<()> {
        self.check_client(context)?;
        let request = ServerRequest::ElicitRequest(self.request());
        let mut options = PeerRequestOptions::no_options();
        options.timeout = Some(ANSWER_TIMEOUT);
        let sent = context.peer.send_request_with_option(request, options).await;
        let answer = match sent {
            Ok(sent) => sent.await_response().await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(ClientResult::ElicitResult(answer)) => decide(&answer),
            Ok(_) => Err(Error::system("ask for consent", "the client has answered something else")),
            Err(ServiceError::Timeout { .. }) => {
                Err(Error::system("ask for consent", "there was no answer; nothing was done"))
            }
            Err(error) => Err(Error::system("ask for consent", error)),
        }
    }

    fn check_client(&self, context: &RequestContext<RoleServer>) -> Result<()> {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        // Without modes, a client supports forms (protocol 2025-06-18).
        match elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none()) {
            true => Ok(()),
            false => Err(Error::new(
                Code::Refused,
                "this needs the consent of a person, and the client cannot ask",
            )
            .hint(self.alternative.clone())),
        }
    }

    fn request(&self) -> ElicitRequest {
        ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: self.text.clone(),
            requested_schema: ElicitationSchema::new(BTreeMap::new()),
        })
    }
}

fn decide(answer: &ElicitResult) -> Result<()> {
    match answer.action {
        ElicitationAction::Accept => Ok(()),
        _ => Err(Error::new(Code::Refused, "the person did not consent; nothing was done")),
    }
}

/// The questions of a conversation that wait for the call with the answer.
#[derive(Debug)]
pub(super) struct Questions<P>(Arc<Mutex<BTreeMap<String, AskedQuestion<P>>>>);

#[derive(Debug)]
struct AskedQuestion<P> {
    request: CallToolRequestParams,
    question: Question<P>,
}

impl<P> Default for Questions<P> {
    fn default() -> Self {
        Questions(Arc::default())
    }
}

impl<P: Send + 'static> Questions<P> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, AskedQuestion<P>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a question until its answer comes, and returns the result that asks it. If it cannot be asked, returns it
    /// with the error: [`Code::Refused`] if the client cannot ask, [`Code::State`] for too many questions.
    pub(super) fn keep(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        question: Question<P>,
    ) -> Result<InputRequiredResult, (Error, Question<P>)> {
        let handle = match question.check_client(context).and_then(|()| new_handle()) {
            Ok(handle) => handle,
            Err(error) => return Err((error, question)),
        };
        let input = InputRequest::Elicitation(question.request());
        let mut waiting = self.lock();
        if waiting.len() >= MAX_QUESTIONS {
            let message = format!("{MAX_QUESTIONS} questions wait for an answer already");
            return Err((Error::new(Code::State, message), question));
        }
        waiting.insert(handle.clone(), AskedQuestion { request: request.clone(), question });
        drop(waiting);
        self.forget_later(handle.clone());
        Ok(InputRequiredResult::new(Some(BTreeMap::from([(QUESTION.to_owned(), input)])), Some(handle)))
    }

    fn forget_later(&self, handle: String) {
        let waiting = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(ANSWER_TIMEOUT).await;
            if let Some(waiting) = waiting.upgrade() {
                waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
            }
        });
    }

    /// Takes the question of an earlier call that `request` repeats without an answer: the client has dropped that one.
    pub(super) fn take_repeated(&self, request: &CallToolRequestParams) -> Option<Question<P>> {
        let mut waiting = self.lock();
        let is_same = |asked: &AskedQuestion<P>| {
            asked.request.name == request.name && asked.request.arguments == request.arguments
        };
        let handle = waiting.iter().find(|(_, asked)| is_same(asked)).map(|(handle, _)| handle.clone())?;
        waiting.remove(&handle).map(|asked| asked.question)
    }

    /// Takes the question that `request` answers, and the answer: [`Code::Refused`] without consent.
    ///
    /// # Errors
    /// [`Code::State`] for an answer to no question.
    pub(super) fn take_answered(&self, request: &CallToolRequestParams) -> Result<(Question<P>, Result<()>)> {
        let handle = request.request_state.as_deref().unwrap_or_default();
        let Some(AskedQuestion { request: asked, question }) = self.lock().remove(handle) else {
            return Err(Error::new(
                Code::State,
                "there is no question with this request state; nothing was done",
            )
            .hint("call the tool again without a request state"));
        };
        let answer = request.input_responses.as_ref().and_then(|answers| answers.get(QUESTION));
        let decision = match answer.map(|answer| serde_json::from_value::<ElicitResult>(answer.clone())) {
            _ if asked.name != request.name || asked.arguments != request.arguments => {
                Err(Error::new(Code::Refused, "the question was about another call; nothing was done"))
            }
            Some(Ok(answer)) => decide(&answer),
            _ => Err(Error::new(Code::Refused, format!("there is no answer {QUESTION:?}; nothing was done"))),
        };
        Ok((question, decision))
    }
}

fn new_handle() -> Result<String> {
    let mut bytes = [0; 16];
    random::fill(&mut bytes).map_err(|e| Error::system("get random bytes for a question", e))?;
    Ok(hex(&bytes))
}
