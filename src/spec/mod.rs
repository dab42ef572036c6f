//! What is to be run, and with which walls: one model, made from two kinds of input that never see
//! each other. No module here does I/O, but [`mod@policy::load`].

pub mod policy;
