pub mod plan_file;
pub mod record;
