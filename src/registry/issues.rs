//! The table of issues of records and remarks of reports: what each means, how serious it is, what it does to a number, and what to do.

use super::codes::{Headline, IssueEntry, Stands};
use crate::store::issue::Severity;

isotherm_wire::table! {
    /// A code of an issue or a remark.
    Code of IssueEntry {
        OutputMismatch {
            code: "output_mismatch",
            words: "output_mismatch",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "The model gave another answer than the campaign says it must",
            when: "`builtin`: the output's digest is not the model's `output_digest`",
            headline: Headline::LeftOut,
            hint: "compare the model file and the expected digest; a changed engine may answer otherwise, too",
        }
        OutputDiffers {
            code: "output_differs",
            words: "output_differs",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "Two repetitions of a point gave different answers",
            when: "`command`: the digest of `success.output_digest` differs from that of another repetition of the point \
                   with the same libraries, as far as both were seen",
            headline: Headline::LeftOut,
            hint: "look for randomness in the tool: a seed, the order of threads",
        }
        WindowOutsideRun {
            code: "window_outside_run",
            words: "window_outside_run",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "Two clocks disagree about when the run was measured",
            when: "The engine's own window doesn't lie between spawn and exit of its process. `llama-bench`: its samples take longer together than \
                   its process. `llama-server`: its own times of a request, `prompt_ms` and `predicted_ms`, are together more than 0.1 % longer than \
                   it took from sending it to the final event",
            headline: Headline::LeftOut,
            hint: "report it with this record, unless the program is a script that prints what it likes: it should not be possible",
        }
        CpuFallback {
            code: "cpu_fallback",
            words: "cpu_fallback",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "The CPU computed what a GPU was asked for",
            when: "`llama-bench`: `-ngl` or `-dev` asks for a GPU, and the tool names none that it used: its `gpu_info` is empty or its `backends` \
                   are `CPU`. `llama-server`: its log says that it found no usable GPU, whatever asked for one, or that it put none of the model's layers there, or fewer \
                   than `-ngl` or `LLAMA_ARG_N_GPU_LAYERS` asks for and the model has. 0 layers ask for no GPU, whatever `-dev` names",
            headline: Headline::LeftOut,
            hint: "use a build of llama.cpp for this GPU, see that its driver works (`llama-bench --list-devices`), ask for as many layers as fit into \
                   its memory, or leave the option out",
        }
        ExecutedDiffers {
            code: "executed_differs",
            words: "executed_differs",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "The tool executed another value, or model, than the one that was passed",
            when: "`llama-bench`: an option with a single value (`threads`, `n_batch`, `n_ubatch`, and of `flags` the KV cache's types, layers on the GPU, \
                   devices, flash attention, how the model is loaded and others) comes back in the tool's output as another value. Spellings of one \
                   value (`on`, `1`, `true`) are no difference, and neither is a field that the build doesn't print. Likewise where its `model_filename` \
                   is another path than that of the model. \
                   `llama-server`: its `/props` say that it has another number of slots than `-np`, or a context that is none of `-c`, or \
                   its log, where it has the line, other threads than `-t`",
            headline: Headline::LeftOut,
            hint: "look at the program: is it a script that has options of its own, or does this build bend the value?",
        }
        SamplesDiffer {
            code: "samples_differ",
            words: "samples_differ",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "The tool's samples contradict its own mean or count",
            when: "`llama-bench`: the mean of the rates of `samples_ns` is more than 0.1 % off `avg_ts`. `llama-server`: a request has more events with \
                   content than tokens, as the server counts them",
            headline: Headline::LeftOut,
            hint: "look at the program: is it a script that changes what the tool prints?",
        }
        PromptCached {
            code: "prompt_cached",
            words: "prompt_cached",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "Prefill was measured on less than the prompt",
            when: "`llama-server`: the server says of a request that it had tokens of the prompt already (`cache_n`), although it was told not to use them, or its \
                   timings are those of another number of tokens (`prompt_n`) than the prompt has",
            headline: Headline::LeftOut,
            hint: "look in `flags` and `env` for what makes the server keep prompts",
        }
        QuantizationDiffers {
            code: "quantization_differs",
            words: "quantization_differs",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "The model's file is of another quantization than the campaign says",
            when: "The type that the header of a GGUF file names is not the model's `quantization`; upper or lower case, `fp16` for `F16` and \
                   `Q4_K` for `Q4_K_M` make no difference",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "see which of both is wrong: the path or what is declared; left out, `quantization` is read from the file",
        }
        KvTrafficExcluded {
            code: "kv_traffic_excluded",
            words: "kv_traffic_excluded",
            stands: Stands::Record,
            severity: Severity::Note,
            means: "`decode_gb_s` counts the weights alone, and at this depth decode reads the context, too",
            when: "`llama-bench`: decode was measured at a `depth` above 0",
            headline: Headline::Untouched,
            hint: "compare `decode_gb_s` with a ceiling at depth 0; how decode slows down with depth is what `decode_tps` says",
        }
        BeyondTrainedContext {
            code: "beyond_trained_context",
            words: "beyond_trained_context",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "The model worked on more tokens than it was trained for",
            when: "`llama-bench`: `depth` and what is measured at it are together more than the context that the header of the model's file tells; \
                   `llama-server`: `n_prompt` and `n_gen` are, as the server tells it",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "lower `depth`, `n_prompt` or `n_gen`; speed is that of a use which the model isn't made for (`isotherm report DIR --include degraded` shows it)",
        }
        InputChanged {
            code: "input_changed",
            words: "input_changed",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "What ran is not, or not surely, what was hashed",
            when: "Program, interpreter, an argument that is a file, an input or the model has another size, mtime or inode than when it was \
                   hashed. Seen before the run, it isn't started (reason `precondition`)",
            headline: Headline::LeftOut,
            hint: "don't write there during a campaign; the next `isotherm run` hashes again",
        }
        Suspended {
            code: "suspended",
            words: "suspended",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "The machine slept during the run",
            when: "BOOTTIME and MONOTONIC moved apart by more than 50 ms",
            headline: Headline::LeftOut,
            hint: "`device.sleep_inhibited` of the record says why isotherm could not keep the machine from sleeping; a run that outlives its controller isn't kept from it. \
                   Mask `sleep.target`, or run `sudo systemd-inhibit --what=sleep sleep infinity` beside it",
        }
        UnkillableProcess {
            code: "unkillable_process",
            words: "unkillable_process",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "A process of the run could not be ended and may disturb what follows",
            when: "A process was still there 10 s after KILL. The device is quarantined until that process has ended or the device was booted again",
            headline: Headline::LeftOut,
            hint: "see where it hangs (the message names it), then reboot the device",
        }
        CompetingLoad {
            code: "competing_load",
            words: "competing_load",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "Other processes worked during the run",
            when: "From just before the spawn until nothing was left of the run, the machine's CPUs worked more than 0.25 cores on average for \
                   others than the run, the agent and the kernel itself. Judged over at least 5 s; in shorter runs, from 0.1 s \
                   on, by what the processes that are named had at least",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "the message names the busiest; stop them, then `isotherm run FILE --rerun AXIS=VALUE`. Without a cgroup of its own a workload \
                   that ignores SIGCHLD competes with itself",
        }
        ControllerBusy {
            code: "controller_busy",
            words: "controller_busy",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "The controller worked during the run, on the same machine",
            when: "From the run's warm-up, or its spawn, to its end isotherm itself used more than 0.5 % of a CPU. Judged over at least 5 s",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "measure this machine in a campaign of its own, or run the campaign from another one",
        }
        BusyBefore {
            code: "busy_before",
            words: "busy_before",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "Other processes worked right before the run, and have left a warm machine with other things in its caches",
            when: "As `competing_load`, over the last 5 s of preparation and settle or a little more. Where nothing is waited for that long, it is \
                   not known and not judged",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "the message names the busiest; stop them, or wait longer with `settle`, then `isotherm run FILE --rerun AXIS=VALUE`",
        }
        GpuBusyBefore {
            code: "gpu_busy_before",
            words: "gpu_busy_before",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "Others used the GPU before the run",
            when: "A compute context of another process on an NVIDIA GPU just before the workload was started; or, where none is seen, a GPU that \
                   was more than 10 % busy over its last sample period, a second or more after isotherm last executed anything. Not where the run was \
                   seen to use another GPU or none",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "end what the message names, then `isotherm run FILE --rerun AXIS=VALUE`",
        }
        SwapTraffic {
            code: "swap_traffic",
            words: "swap_traffic",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "The machine swapped during the run",
            when: "Pages were read from swap or written to it between the readings before and after the run",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "use a smaller model, end what else needs memory, or switch swap off",
        }
        Throttled {
            code: "throttled",
            words: "throttled",
            stands: Stands::Record,
            severity: Severity::Note,
            means: "The device held its clock back during the run",
            when: "A live bit of the Raspberry Pi's firmware, or a sticky one that wasn't set before; a throttle count of an x86 CPU that has grown; an \
                   NVIDIA GPU that gives heat, hardware slowdown or power brake as the reason of its clock in a sample of the run. Runs of that state \
                   have a row of their own",
            headline: Headline::Untouched,
            hint: "cool the device, give it a better supply, or wait longer between runs; measured on purpose, it is the sustained figure",
        }
        CgroupThrottled {
            code: "cgroup_throttled",
            words: "cgroup_throttled",
            stands: Stands::Record,
            severity: Severity::Note,
            means: "A CPU quota held the run back",
            when: "The keeper's own cgroup was held back by its quota between the readings before and after the run. Runs of that state have a row \
                   of their own",
            headline: Headline::Untouched,
            hint: "raise the quota of the container, or use as many threads as it allows",
        }
        FrequencyLimitsChanged {
            code: "frequency_limits_changed",
            words: "frequency_limits_changed",
            stands: Stands::Record,
            severity: Severity::Note,
            means: "Between which frequencies a CPU may be was changed during the run",
            when: "A lower or upper limit of cpufreq is another after the run than before it. Drivers that keep a hot chip in check do that, too",
            headline: Headline::Untouched,
            hint: "cool the device, or set limits of your own (`prepare: { frequency: … }`); `context.clocking_before` has those that were there",
        }
        ClockSettingsChanged {
            code: "clock_settings_changed",
            words: "clock_settings_changed",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "Somebody changed how the CPUs choose their clock during the run, which is of neither setting",
            when: "A governor, an energy preference, boost or the platform profile is another after the run than before it",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "see what changes it (`power-profiles-daemon`, `tuned`, a plug that was pulled), stop that, then `isotherm run FILE --rerun AXIS=VALUE`",
        }
        DeviceRestarted {
            code: "device_restarted",
            words: "device_restarted",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "The device was started anew in the middle of the run",
            when: "The boot id is another one than when the run was started, and the run left no result. Tried again once by itself; the second \
                   time the run's reason is `device_lost`",
            headline: Headline::LeftOut,
            hint: "see what took the device down: its power supply, its temperature, or memory that this point needs and it doesn't have",
        }
        PrepareDenied {
            code: "prepare_denied",
            words: "prepare_denied",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "The device was not put into the state that the campaign asks for, because the agent may not",
            when: "A step of `prepare` has the outcome `denied`",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "run the agent as root, or let its user do just that with the lines of docs/protocol.md in `/etc/sudoers.d/isotherm`",
        }
        PrepareFailed {
            code: "prepare_failed",
            words: "prepare_failed",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "The device was not put into the state that the campaign asks for, or not back into the one before",
            when: "A step of `prepare` has the outcome `failed`",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "the message says what failed; `isotherm restore` tries again to give back what was borrowed",
        }
        PrepareUnsupported {
            code: "prepare_unsupported",
            words: "prepare_unsupported",
            stands: Stands::Record,
            severity: Severity::Note,
            means: "The campaign asks for a state that this device doesn't have",
            when: "A step of `prepare` has the outcome `unsupported`",
            headline: Headline::Untouched,
            hint: "leave the step out for this device; `isotherm probe` says what it can do",
        }
        SettleTimeout {
            code: "settle_timeout",
            words: "settle_timeout",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "The device was not as quiet as it should have been when the run began",
            when: "`prepare.settle` with `on_timeout: flag`: until `timeout` the criteria were not met for three seconds on end. `settle` has each \
                   of them with its last value",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "the message says what it was; end what else runs, cool the device, raise `timeout` or `temp_within`",
        }
        ReferenceRaised {
            code: "reference_raised",
            words: "reference_raised",
            stands: Stands::Record,
            severity: Severity::Note,
            means: "The device does not come back to the temperature that it had at first; from now on a warmer one counts as being at rest",
            when: "Three waits in a row ended with a time-out at which the headline sensor was above its reference by more than `temp_within`. The \
                   coolest of the three ends is the new reference",
            headline: Headline::Untouched,
            hint: "look at what warms it: the room, its fan, what else runs; `settle.reference` of later records has the new value",
        }
        SensorLost {
            code: "sensor_lost",
            words: "sensor_lost",
            stands: Stands::Record,
            severity: Severity::Note,
            means: "Nobody could tell whether the device became hotter than `limits.temp_max` allows",
            when: "The headline sensor gave no value for 10 s of an invocation, or there is none. With `on_sensor_loss: stop` the run ends with it, \
                   or isn't started (reason `precondition`)",
            headline: Headline::Untouched,
            hint: "see which sensors `isotherm probe` reads, and what the kernel's log says of the one that is named",
        }
        LeftProcesses {
            code: "left_processes",
            words: "left_processes",
            stands: Stands::Record,
            severity: Severity::Note,
            means: "The workload left processes behind, which have been ended",
            when: "Processes were there after the workload's first one had ended by itself",
            headline: Headline::Untouched,
            hint: "let the tool wait for its children",
        }
        WindowObserverMismatch {
            code: "window_observer_mismatch",
            words: "window_observer_mismatch",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "The energy instrument did not see all of what ran",
            when: "Its readings cover another time than the window, by more than 1 % and two of its periods, or don't reach its edges. The \
                   figure is withheld. A note where the run was not made for its energy, or is too short for a figure",
            headline: Headline::LeftOut,
            hint: "see `observer.given_up` and `samples` of the record; a sensor that answers late needs a lower `sample_hz` or a longer window",
        }
        WindowClockFrozen {
            code: "window_clock_frozen",
            words: "window_clock_frozen",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "Inferences were completed in no time at all",
            when: "The window of the timed inferences is 0 s long. A note where the run was not made for its energy",
            headline: Headline::LeftOut,
            hint: "report it with this record: it should not be possible",
        }
        WindowClockExceedsHost {
            code: "window_clock_exceeds_host",
            words: "window_clock_exceeds_host",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "The window that energy was integrated over is longer than the process that ran in it",
            when: "By more than 0.25 s. The figure is withheld. A note where the run was not made for its energy",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "report it with this record: it should not be possible",
        }
        EnergyImplausible {
            code: "energy_implausible",
            words: "energy_implausible",
            stands: Stands::Record,
            severity: Severity::Error,
            means: "An instrument says what can't be",
            when: "Energy of 0 or less, a counter that went back where it doesn't wrap, a mean power above 1.2 times the limit that is enforced. \
                   The figure is withheld. A note where the run was not made for its energy",
            headline: Headline::LeftOut,
            hint: "look at the instrument's columns in `samples`; a counter that stands still is often one of a virtual machine",
        }
        EdgeError {
            code: "edge_error",
            words: "edge_error",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "The window is too short for how often the instrument was read",
            when: "Power at the edges differs from the mean so much that what was cut off or added there may be more than 2 % of the energy; above \
                   5 % there is no `power_w` and none per inference. A note where the run was not made for its energy",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "make the run longer: more `iterations`, fewer `rounds`; or raise `sample_hz`",
        }
        InstrumentsDisagree {
            code: "instruments_disagree",
            words: "instruments_disagree",
            stands: Stands::Record,
            severity: Severity::Warning,
            means: "Two instruments for the same thing have different energies",
            when: "They differ by more than 10 % over one window. A note where the run was not made for its energy",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "compare both figures in `energy` of the record; a sampled power misses what happens between its samples",
        }
        ReferenceDrift {
            code: "reference_drift",
            words: "reference_drift",
            stands: Stands::Record,
            severity: Severity::Note,
            means: "The window holds more, or less, than the inferences that were timed in it",
            when: "Its length is more than 10 % off the sum of the inferences; above 15 % there is no energy per inference",
            headline: Headline::Untouched,
            hint: "very short inferences have a loop around them that counts; compare rates instead",
        }
        CheckInoperative {
            code: "check_inoperative",
            words: "check_inoperative",
            stands: Stands::Record,
            severity: Severity::Note,
            means: "A check of an energy figure could not be made, which is not passing it",
            when: "The message names what was missing",
            headline: Headline::Untouched,
            hint: "see `energy[].checks` of the record",
        }
        Failed {
            code: "failed",
            words: "failed",
            stands: Stands::Report,
            severity: Severity::Error,
            means: "Runs of the point are not ok",
            when: "The record's status is `failed`; its reason stands beside it",
            headline: Headline::LeftOut,
            hint: "mend what the reason names, then `isotherm run` again: failed jobs are repeated",
        }
        Skipped {
            code: "skipped",
            words: "skipped",
            stands: Stands::Report,
            severity: Severity::Note,
            means: "Runs of the point were not made, on purpose",
            when: "The record's status is `skipped`; its reason stands beside it",
            headline: Headline::LeftOut,
            hint: "the message says what made them needless; `isotherm run FILE --rerun AXIS=VALUE` makes them all the same",
        }
        Invalid {
            code: "invalid",
            words: "invalid left out",
            stands: Stands::Report,
            severity: Severity::Error,
            means: "Runs ended well, but their numbers must not be used",
            when: "The record has an issue of severity `error`",
            headline: Headline::LeftOut,
            hint: "mend what its issues name, then `isotherm run` again: invalid jobs are repeated",
        }
        DegradedLeftOut {
            code: "degraded_left_out",
            words: "degraded left out",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "Runs were disturbed and are not in the number",
            when: "The record has an issue of severity `warning`",
            headline: Headline::LeftOutUnlessIncluded,
            hint: "repeat them on a quiet machine (`isotherm run FILE --rerun AXIS=VALUE`), or use them: `isotherm report DIR --include degraded`",
        }
        CeilingTooLow {
            code: "ceiling_too_low",
            words: "ceiling_too_low",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "More was reached than the device is said to be able to",
            when: "`decode_gb_s` is above the device's ceiling `dram_read_gb_s`; the utilization is printed as it is",
            headline: Headline::Flagged,
            hint: "measure the memory's bandwidth anew, with all threads and read-only; of a model that fits into the caches, decode doesn't read memory at all",
        }
        DegradedUsed {
            code: "degraded_used",
            words: "degraded used",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "Disturbed runs are in the number",
            when: "As `degraded_left_out`, with `--include degraded`",
            headline: Headline::Flagged,
            hint: "leave `--include degraded` away for a number without them",
        }
        Unexplained {
            code: "unexplained",
            words: "unexplained",
            stands: Stands::Report,
            severity: Severity::Error,
            means: "A record doesn't say why it is failed, skipped, invalid or degraded",
            when: "No reason stands in it, or no issue of the severity that its validity calls for",
            headline: Headline::LeftOut,
            hint: "look at the record: this isotherm doesn't write such; another version or tool did",
        }
        Missing {
            code: "missing",
            words: "missing",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "Planned runs have no record",
            when: "The plan wants this repetition and no record of it is there",
            headline: Headline::Flagged,
            hint: "`isotherm run` makes what is missing",
        }
        WithoutValue {
            code: "without_value",
            words: "without value",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "Runs are ok and have no value of this metric",
            when: "The record has no such metric, has it as `null` with a reason, or with another unit or definition id",
            headline: Headline::LeftOut,
            hint: "the reason stands below the table; check the metric's rule and what the tool printed",
        }
        Withheld {
            code: "withheld",
            words: "withheld",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "One run that escaped the disturbance of all others is no number of the point",
            when: "One valid run is left beside degraded ones",
            headline: Headline::Withheld,
            hint: "repeat the disturbed runs, or use them: `isotherm report DIR --include degraded`",
        }
        RatesDiffer {
            code: "rates_differ",
            words: "rates_differ",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "Power runs were another workload than the timing runs that their power would be divided by",
            when: "The means of their times for an inference differ by more than 5 %, over the repetitions that have both, of any point of the row",
            headline: Headline::Withheld,
            hint: "let instruments be read less often (`measure.sample_hz`), or look into the records for what disturbed the power runs",
        }
        MixedIdentity {
            code: "mixed_identity",
            words: "mixed_identity",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "The same axes were measured as different things",
            when: "Records of the same device, backend and axes have several identities; each has its own row",
            headline: Headline::Flagged,
            hint: "`isotherm plan FILE` says what changed; `isotherm run FILE` measures what the plan wants",
        }
        MixedLibraries {
            code: "mixed_libraries",
            words: "mixed_libraries",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "The point's runs did not all use the same libraries",
            when: "Runs of the point had different contents of one library mapped; they stand in one row",
            headline: Headline::Flagged,
            hint: "`isotherm run FILE` repeats those whose library has changed since",
        }
        MixedExecuted {
            code: "mixed_executed",
            words: "mixed_executed",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "What computed was not the same in all runs of the point: a GPU in some and the CPU in others, or other devices or threads",
            when: "The tool's own output (`executed`) says another `gpu_info`, `backends` or `devices`, or another `n_threads` where no axis says it, in \
                   some of the runs; they stand in one row. A driver that went away does that: the tool goes on with the CPU",
            headline: Headline::Flagged,
            hint: "look at the device's driver, ask for the GPU by a flag (`-ngl`, `-dev`), and make the runs again: `isotherm run FILE --fresh`",
        }
        Conditions {
            code: "conditions",
            words: "conditions",
            stands: Stands::Report,
            severity: Severity::Note,
            means: "The device's runs were not all made under the conditions that the campaign declares for these",
            when: "Two runs of a device have different `conditions` in their records; what differs stands beside it",
            headline: Headline::Flagged,
            hint: "compare points of the same conditions, or correct `conditions`, which isotherm takes as declared",
        }
        StaleIdentity {
            code: "stale_identity",
            words: "stale identity",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "The records answer a question that the plan no longer asks",
            when: "The plan wants these axes with another identity than the records have",
            headline: Headline::Flagged,
            hint: "`isotherm plan FILE` says what changed; `isotherm run FILE` measures it anew",
        }
        Orphan {
            code: "orphan",
            words: "orphan",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "The point is not in the plan",
            when: "The stored plan has no point with these axes",
            headline: Headline::Flagged,
            hint: "move its directory away, or put the point back into the campaign file and `isotherm run` it",
        }
        OrphanLeftOut {
            code: "orphan_left_out",
            words: "orphan left out",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "Runs of a planned point are beyond what the plan wants",
            when: "The repetition's number is not below the planned `repetitions`",
            headline: Headline::LeftOut,
            hint: "raise `repetitions` to use them",
        }
        MixedEpochs {
            code: "mixed_epochs",
            words: "mixed_epochs",
            stands: Stands::Report,
            severity: Severity::Note,
            means: "The point's runs didn't all take turns with the other arms, so that drift of the machine may look like a difference",
            when: "They come from several invocations of `isotherm run`",
            headline: Headline::Flagged,
            hint: "for a comparison make them in one go: `isotherm run FILE --fresh`",
        }
        OperatingState {
            code: "operating_state",
            words: "in state",
            stands: Stands::Report,
            severity: Severity::Note,
            means: "These runs found the machine in another state than others of the point, or in one to be known",
            when: "The runs of a point differ in being throttled, held back by a quota, on battery, or in the governor: each state has a row of its \
                   own. A row whose runs are all throttled, held back or on battery says so, too",
            headline: Headline::Flagged,
            hint: "compare rows of one state only",
        }
        SpreadHigh {
            code: "spread_high",
            words: "spread_high",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "The runs of the point disagree, or the samples of a run do; a small difference can't be seen in them",
            when: "Three or more run headlines with a CoV above 10 %, or two above 20 %; of llama.cpp, whose runs have no rounds, also three or more samples of a \
                   run, where requests don't compete",
            headline: Headline::Flagged,
            hint: "look at `context.during` of its records for what else ran; quieten the machine or raise `repetitions`",
        }
        ArithmeticMean {
            code: "arithmetic_mean",
            words: "arithmetic mean",
            stands: Stands::Report,
            severity: Severity::Note,
            means: "The number is no geometric mean and can't be compared with one",
            when: "A run headline is zero or negative, so there are no logs",
            headline: Headline::Flagged,
            hint: "check the metric's rule if the value can't be zero or negative",
        }
        Duplicate {
            code: "duplicate",
            words: "duplicate",
            stands: Stands::Report,
            severity: Severity::Warning,
            means: "A second record of the same run, such as a copy",
            when: "Two records have the same job, attempt and identity; the first by path is used",
            headline: Headline::LeftOut,
            hint: "move the copy away",
        }
        BrokenFile {
            code: "broken_file",
            words: "broken file",
            stands: Stands::Report,
            severity: Severity::Error,
            means: "A file where a record should be is none",
            when: "It is torn, edited, of a newer version, or unreadable; it is treated as not there",
            headline: Headline::LeftOut,
            hint: "`isotherm verify DIR` names all of them; put back a copy, or `isotherm run` again",
        }
    }
}
