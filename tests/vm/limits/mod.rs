//! Limits of the default sandbox in a cgroup that was given to saggar alone, as a service manager gives one.

mod advice;
mod faults;
mod given;
mod holds;
mod measured;
mod places;

pub(crate) use given::{Given, Run, Saggar};
