//! `saggar session pause`.

use super::control;
use crate::error::Result;
use crate::session::record::Record;
use crate::session::states::{Move, State};
use serde_json::json;

pub(super) fn run(id: &str) -> Result<u8> {
    let (_, _, record) = Record::find(id)?;
    record.state.after(Move::Pause).map_err(|illegal| illegal.error(id))?;
    if record.state == State::Paused {
        return Ok(0);
    }
    control(&record)?.call("pause", &json!({}))?;
    Ok(0)
}
