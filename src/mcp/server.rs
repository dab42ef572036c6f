//! A server with a fixed set of tools. Calls run one after the other: the tools work on files and sockets of one owner.

use crate::error::{Error, Result};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

/// Longest line of a client, in bytes: content of 16 MiB, every byte of it escaped. The SDK drops a longer one.
const MAX_LINE: usize = 128 << 20;

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

/// The tools of a server.
pub(crate) trait ToolSet: Send {
    /// The name of the server.
    fn server_name(&self) -> &'static str;

    /// How a model is to use the tools.
    fn instructions(&self) -> String;

    /// Names, descriptions and schemas.
    fn tools(&self) -> Vec<Tool>;

    /// Calls a tool; `None` if there is none with this name.
    fn call(&mut self, name: &str, arguments: JsonObject) -> Option<Result<ToolOutput>>;
}

struct Server<T>(Mutex<T>);

impl<T: ToolSet> Server<T> {
    fn with_tools<R>(&self, job: impl FnOnce(&mut T) -> R) -> R {
        job(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: ToolSet + 'static> ServerHandler for Server<T> {
    fn get_info(&self) -> ServerConfig {
        let (name, instructions) = self.with_tools(|tools| (tools.server_name(), tools.instructions()));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(name, env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.with_tools(|tools| tools.tools())))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        match self.with_tools(|tools| tools.call(&request.name, arguments)) {
            Some(Ok(output)) => Ok(result(output).into()),
            Some(Err(error)) => {
                Ok(CallToolResult::error(vec![ContentBlock::text(error_text(&error))]).into())
            }
            None => Err(ErrorData::invalid_params(format!("unknown tool {:?}", request.name), None)),
        }
    }
}

fn result(output: ToolOutput) -> CallToolResult {
    let blocks = [Some(output.text), output.note].into_iter().flatten().map(ContentBlock::text);
    let mut result = CallToolResult::success(blocks.collect());
    result.structured_content = output.structured;
    result
}

/// An error for the model, which can correct its call.
fn error_text(error: &Error) -> String {
    match error.hint_text() {
        Some(hint) => format!("{error}\n{hint}"),
        None => error.to_string(),
    }
}

/// Serves the tools on standard input and output until the client closes them. Returns the exit status.
///
/// # Errors
/// [`crate::error::Code::System`]: the client does not speak the protocol, or a stream failed.
pub(crate) fn serve(tools: impl ToolSet + 'static) -> Result<u8> {
    let fail = |what: &str, cause: &dyn std::fmt::Display| Error::system(what, cause);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| fail("start the event loop", &e))?;
    let served = runtime.block_on(async {
        let transport = AsyncRwTransport::new_server(tokio::io::stdin(), tokio::io::stdout())
            .with_max_line_length(MAX_LINE);
        let service = match Server(Mutex::new(tools)).serve(transport).await {
            Ok(service) => service,
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(0),
            Err(error) => return Err(fail("begin a conversation with the MCP client", &error)),
        };
        service.waiting().await.map(|_| 0).map_err(|e| fail("serve the MCP client", &e))
    });
    // The thread that reads standard input may still wait for it.
    runtime.shutdown_background();
    served
}
