//! A server with a fixed set of tools, on standard streams or on the connections of a socket.

use super::question::{Question, Questions};
use super::transport::LineTransport;
use super::turns::{ConversationTurn, Turns};
use crate::error::{Error, Result};
use crate::service::SupervisorSocket;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult,
    ErrorCode, Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::Value;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

/// Most conversations on a socket at a time. More wait until one ends.
const MAX_CONNECTIONS: usize = 16;
/// Delay before the next accept after an error, for instance for want of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The output of a tool.
#[derive(Debug, Default)]
pub(crate) struct ToolOutput {
    /// The text, as clients read it.
    pub(crate) text: String,
    /// More for the model, in a block of its own.
    pub(crate) note: Option<String>,
    /// The same as JSON.
    pub(crate) structured: Option<Value>,
}

/// The reply of a tool.
#[derive(Debug)]
pub(crate) enum ToolReply<P> {
    /// The call is complete.
    Output(ToolOutput),
    /// The call continues if a person consents.
    Question(Question<P>),
}

/// The tools of a server.
pub(crate) trait ToolSet: Send + Sync {
    /// A call that waits for consent. Dropping it withdraws the call, which may take a moment.
    type Pending: Send + Sync + 'static;

    /// The name of the server.
    fn server_name(&self) -> &'static str;

    /// How a model is to use the tools.
    fn instructions(&self) -> String;

    /// Names, descriptions and schemas.
    fn tools(&self) -> Vec<Tool>;

    /// Calls a tool; `None` if there is none with this name. If the client cancels the call, the future is dropped.
    fn call(
        &self,
        name: &str,
        arguments: JsonObject,
    ) -> impl Future<Output = Option<Result<ToolReply<Self::Pending>>>> + Send;

    /// Continues a call that a person has consented to.
    fn proceed(&self, pending: Self::Pending) -> impl Future<Output = Result<ToolOutput>> + Send;

    /// Ends a call without consent; nothing of it is left.
    fn withdraw(&self, pending: Self::Pending) -> impl Future<Output = ()> + Send;
}

/// One conversation. All conversations of a process share the tools.
struct Server<T: ToolSet> {
    tools: Arc<T>,
    questions: Questions<T::Pending>,
}

impl<T: ToolSet + 'static> ServerHandler for Server<T> {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(self.tools.server_name(), env!("CARGO_PKG_VERSION")))
            .with_instructions(self.tools.instructions())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let cancellation = context.ct.clone();
        match cancellation.run_until_cancelled(self.respond(request, &context)).await {
            Some(response) => response,
            None => Err(ErrorData::internal_error("the client has cancelled the call", None)),
        }
    }

    /// The SDK takes a call with malformed parameters for one of an unknown method.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(match request.method.as_str() {
            "tools/call" => {
                ErrorData::invalid_params("tools/call takes name, a string, and arguments, an object", None)
            }
            method => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("unknown method {method:?}"), None),
        })
    }
}

/// How far a call has come.
enum CallStep<P> {
    /// To a response, which may be a question that the client answers with another call.
    Respond(CallToolResponse),
    /// To the answer to a question.
    Decide(Question<P>, Result<()>),
}

impl<T: ToolSet> Server<T> {
    async fn respond(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let step = match request.request_state {
            None => self.begin(&request, context).await?,
            Some(_) => match self.questions.take_answered(&request) {
                Ok((question, decision)) => CallStep::Decide(question, decision),
                Err(error) => CallStep::Respond(result(Err(error)).into()),
            },
        };
        Ok(match step {
            CallStep::Respond(response) => response,
            CallStep::Decide(question, Ok(())) => result(self.tools.proceed(question.pending).await).into(),
            CallStep::Decide(question, Err(error)) => {
                self.tools.withdraw(question.pending).await;
                result(Err(error)).into()
            }
        })
    }

    /// Calls the tool, and asks what it asks.
    async fn begin(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallStep<T::Pending>, ErrorData> {
        if let Some(question) = self.questions.take_repeated(request) {
            self.tools.withdraw(question.pending).await;
        }
        let arguments = request.arguments.clone().unwrap_or_default();
        let question = match self.tools.call(&request.name, arguments).await {
            None => {
                let message = format!("unknown tool {:?}", request.name);
                return Err(ErrorData::invalid_params(message, None));
            }
            Some(Ok(ToolReply::Question(question))) => question,
            Some(Ok(ToolReply::Output(output))) => return Ok(CallStep::Respond(result(Ok(output)).into())),
            Some(Err(error)) => return Ok(CallStep::Respond(result(Err(error)).into())),
        };
        if may_send_requests(context) {
            let decision = question.ask(context).await;
            return Ok(CallStep::Decide(question, decision));
        }
        Ok(match self.questions.keep(request, context, question) {
            Ok(input_required) => CallStep::Respond(input_required.into()),
            Err((error, question)) => CallStep::Decide(question, Err(error)),
        })
    }
}

/// Whether a server may send requests to the client, in the protocol of the conversation.
fn may_send_requests(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_none_or(|version| version.has_initialize())
}

/// An error is for the model, which can correct its call.
fn result(output: Result<ToolOutput>) -> CallToolResult {
    match output {
        Ok(output) => {
            let blocks = [Some(output.text), output.note].into_iter().flatten().map(ContentBlock::text);
            let mut result = CallToolResult::success(blocks.collect());
            result.structured_content = output.structured;
            result
        }
        Err(error) => CallToolResult::error(vec![ContentBlock::text(match error.hint_text() {
            Some(hint) => format!("{error}\n{hint}"),
            None => error.to_string(),
        })]),
    }
}

/// Serves the tools on standard input and output until the client closes them. Returns the exit status.
///
/// # Errors
/// [`crate::error::Code::System`]: the client does not speak the protocol, or a stream failed.
pub(crate) fn serve(tools: impl ToolSet + 'static) -> Result<u8> {
    let runtime = runtime().map_err(|e| Error::system("start the event loop", e))?;
    let tools = Arc::new(tools);
    let served = runtime.block_on(serve_conversation(tools, tokio::io::stdin(), tokio::io::stdout(), None));
    // The thread that reads standard input may still wait for it.
    runtime.shutdown_background();
    served.map(|()| 0)
}

/// Serves the tools on the sockets that the supervisor passes, until it closes its end. Calls are served one after the
/// other: this process has little memory.
///
/// # Errors
/// The error that prevented the event loop from running.
pub(crate) fn serve_sockets(tools: impl ToolSet + 'static, supervisor: OwnedFd) -> io::Result<()> {
    let tools = Arc::new(tools);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let turns = Turns::new();
    runtime()?.block_on(async {
        let supervisor = SupervisorSocket::new(supervisor)?;
        while let Some(socket) = supervisor.next_listener().await? {
            let listener = UnixListener::from_std(socket.into())?;
            tokio::spawn(accept_connections(listener, Arc::clone(&tools), Arc::clone(&slots), turns.clone()));
        }
        Ok(())
    })
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Accepts connections while the limit allows it.
async fn accept_connections<T: ToolSet + 'static>(
    listener: UnixListener,
    tools: Arc<T>,
    slots: Arc<Semaphore>,
    turns: Turns,
) {
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (input, output) = stream.into_split();
                let (tools, turn) = (Arc::clone(&tools), turns.conversation());
                tokio::spawn(async move {
                    // Errors of a conversation concern its client alone, which sees the end of the connection.
                    let _ = serve_conversation(tools, input, output, Some(turn)).await;
                    drop(slot);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
}

/// Serves one client until it closes the connection.
async fn serve_conversation<T, R, W>(
    tools: Arc<T>,
    input: R,
    output: W,
    turn: Option<ConversationTurn>,
) -> Result<()>
where
    T: ToolSet + 'static,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let server = Server { tools, questions: Questions::default() };
    let service = match server.serve(LineTransport::new(input, output, turn)).await {
        Ok(service) => service,
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Error::system("begin a conversation with the MCP client", error)),
    };
    service.waiting().await.map(drop).map_err(|e| Error::system("serve the MCP client", e))
}
