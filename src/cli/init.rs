//! `isotherm init`.
use super::{InitArgs, exit};
pub fn init(_args: &InitArgs) -> u8 {
    exit::OK
}
