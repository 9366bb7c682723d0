//! Reasons why a run is not ok: when each is given, and what to do. The set itself is closed in the record's schema.

use super::Given;
use crate::store::record::Reason;

/// What is known of one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasonEntry {
    /// The exact condition.
    pub when: &'static str,
    /// What to do, as a fragment after `hint:`.
    pub hint: &'static str,
    pub given: Given,
}

const fn given(when: &'static str, hint: &'static str) -> ReasonEntry {
    ReasonEntry { when, hint, given: Given::Yes }
}

const fn not_yet(when: &'static str, hint: &'static str) -> ReasonEntry {
    ReasonEntry { when, hint, given: Given::NotYet }
}

/// The row of a reason.
#[must_use]
pub const fn reason(reason: Reason) -> ReasonEntry {
    match reason {
        Reason::Oom => given(
            "Ended by SIGKILL (or exit code 137, a shell's word for it) while the machine's count of out-of-memory kills has grown; or it failed and said itself that memory ran out",
            "use a smaller model or fewer threads, or raise the memory limit; it is not tried again by itself: `isotherm run FILE --rerun AXIS=VALUE`",
        ),
        Reason::Timeout => given(
            "Ran into `timeout`, measured or in a warm-up invocation; or a server was not ready within `startup_timeout`",
            "raise it in the campaign if it needs longer; otherwise see its last words in the record",
        ),
        Reason::ExitCode => given(
            "The exit code is none of `success.exit`; of the other backends: not 0; a server ended by itself",
            "read the tool's last words in the message; add the code to `success.exit` if it means success",
        ),
        Reason::Signal => {
            given("Ended by a signal that isotherm didn't send", "read the tool's last words in the message; run its argv by hand to see it crash")
        }
        Reason::Transport => not_yet("The connection to the device failed for good", "check that the device can be reached, then run again"),
        Reason::Parse => given(
            "A rule found nothing, or no finite number; the output of a tool or the engine was not understood; a server refused a request, cut its answer short, or gave another one than was asked for",
            "compare the rule in the campaign with `raw.stdout` of the record",
        ),
        Reason::MemoryThrash => given(
            "Stopped because for 60 s every task of the machine waited for memory more than half of the time (PSI memory `full`), measured or in a warm-up invocation",
            "use a smaller model or fewer threads, or give the machine more memory; it is not tried again by itself: `isotherm run FILE --rerun AXIS=VALUE`",
        ),
        Reason::ThermalStop => given(
            "Stopped because the headline sensor was above `limits.temp_max`; measured or in a warm-up invocation",
            "cool the device, or raise the limit; it is not tried again by itself: `isotherm run FILE --rerun AXIS=VALUE`",
        ),
        Reason::Precondition => given(
            "Nothing was started: a file of the run had changed, CPUs of `cpus` are not there or not allowed, the model has more than 95 % of the available memory, the device did not settle in time and `on_timeout` is `fail` or `skip`, or no sensor tells the temperature that is limited and `on_sensor_loss` is `stop`. Or it was stopped, with that `on_sensor_loss`, because the sensor was silent for 10 s. Or nothing was asked of a server that has less context for a request than it needs",
            "the message says which: leave the files alone during a campaign, choose other CPUs, free memory or use `isotherm run --force`, cool the device, \
             ask for fewer tokens or give the server more context",
        ),
        Reason::CapabilityAbsent => not_yet("The device lacks what the point needs", "leave the point out for this device, or give it what is named"),
        Reason::ModelMissing => given(
            "The model's file was missing on the device or no regular file, whatever exit code the workload made of it; of `command`, too. Or a server was ready without a model, or with another one",
            "put the file where the message says, or correct `path` or `paths` of the model",
        ),
        Reason::Spawn => given(
            "Could not be started, in the system's words; also a working directory that isn't there",
            "check path and permissions of `argv[0]`; a relative path starts at the campaign file",
        ),
        Reason::Interrupted => given(
            "Cancelled by a controller (third Ctrl-C); the keeper died with the run, twice; the device was started anew in the middle of it",
            "`isotherm run` tries it again",
        ),
        Reason::DeviceLost => given(
            "The device was started anew in the middle of the run, and again when the run was repeated",
            "see whether this point takes the device down (power, temperature, memory); it is not tried again by itself: `isotherm run FILE --rerun AXIS=VALUE`",
        ),
        Reason::Dominated => given(
            "Skipped: a point that differs in nothing but a smaller value of the axis of `dominance` failed for a reason that it names",
            "`isotherm run FILE --rerun AXIS=VALUE` makes it all the same",
        ),
        Reason::Internal => given(
            "The agent itself failed: making directories, containment, the sampler; a process of a warm-up could not be ended; \
             the device could not write the result",
            "see the message; free space and permissions of the keeper's state directory are the usual causes",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_the_schema_is_in_the_list_under_its_name() {
        let schema = schemars::schema_for!(Reason).to_value();
        let names: Vec<&str> = schema["enum"].as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
        assert_eq!(names, Reason::ALL.iter().map(|reason| reason.name()).collect::<Vec<_>>());
    }

    #[test]
    fn every_reason_has_a_condition_and_a_hint() {
        for name in Reason::ALL {
            let ReasonEntry { when, hint, .. } = reason(*name);
            assert!(!when.is_empty() && !hint.is_empty(), "{}", name.name());
            assert!(!when.ends_with('.') && !hint.ends_with('.') && !hint.starts_with(|c: char| c.is_uppercase()), "{}", name.name());
        }
    }
}
