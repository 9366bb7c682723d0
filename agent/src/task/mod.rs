//! Tasks: takes a task as the wire defines it, gives what is invoked and, for the builtin ones, executes it; must not know campaigns
//! or metrics.

pub mod infer;
pub mod process;
pub mod served;
