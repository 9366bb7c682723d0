//! NVML as far as isotherm asks it. Every function is looked up on its own, by its newest name first: a library that lacks one, or a GPU
//! that doesn't support it, costs that value and no other.

use isotherm_wire::companion::{Answer, COMPANION_VERSION, ComputeProcess, Getter, Gpus, NVML_VARIABLE, Question};
use isotherm_wire::inspect::Gpu;
use isotherm_wire::probe::{Absent, Cause};
use libloading::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::Path;

/// Name by which the loader finds it.
const NAME: &str = "libnvidia-ml.so.1";
/// Where it lies though no loader looks there: WSL, JetPack, container runtimes.
const DIRS: [&str; 4] = ["/usr/lib/wsl/lib", "/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/aarch64-linux-gnu/tegra", "/usr/local/nvidia/lib64"];

/// `nvmlReturn_t`: a few of its values.
const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 3;
const NO_PERMISSION: c_int = 4;
const INSUFFICIENT_SIZE: c_int = 7;
const DRIVER_NOT_LOADED: c_int = 9;

/// `NVML_TEMPERATURE_GPU`.
const GPU_SENSOR: c_uint = 0;
/// `nvmlClockType_t`.
const GRAPHICS: c_uint = 0;
const MEMORY: c_uint = 2;
/// `NVML_VALUE_NOT_AVAILABLE` of a process's memory.
const NOT_AVAILABLE: u64 = u64::MAX;
/// Longest text that is asked for; the longest of NVML is 96.
const TEXT_BYTES: usize = 128;
/// Most processes asked for.
const MOST_PROCESSES: usize = 4096;

type Device = *mut c_void;

/// The library, initialised for as long as this process lives: the driver stays loaded meanwhile.
pub struct Nvml {
    library: Library,
    source: String,
}

/// A process as of the second version of the call, and of all since.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// And as of the first.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfoV1 {
    pid: c_uint,
    used: c_ulonglong,
}

impl Nvml {
    /// Load it from the place that is named, else by its name, else from the usual places, and initialise it.
    pub fn open() -> Result<Nvml, Absent> {
        let named = std::env::var_os(NVML_VARIABLE).filter(|path| !path.is_empty());
        let candidates: Vec<OsString> = match named {
            Some(path) => vec![path],
            None => {
                let there = DIRS.iter().map(|dir| Path::new(dir).join(NAME)).filter(|path| path.exists()).map(OsString::from);
                [OsString::from(NAME)].into_iter().chain(there).collect()
            }
        };
        let mut why = None;
        for path in candidates {
            // SAFETY: loading runs the library's own initialisers; it is NVIDIA's, or what the user named in its place.
            match unsafe { Library::new(&path) } {
                Ok(library) => {
                    let nvml = Nvml { library, source: path.to_string_lossy().into_owned() };
                    // SAFETY: `nvmlReturn_t nvmlInit_v2(void)`.
                    let init: unsafe extern "C" fn() -> c_int = unsafe { nvml.function(&["nvmlInit_v2", "nvmlInit"]) }?;
                    // SAFETY: as above.
                    return nvml.check(unsafe { init() }).map(|()| nvml);
                }
                // By its name first: that the loader doesn't know it says most.
                Err(e) => _ = why.get_or_insert_with(|| absent(Cause::NotThere, &e.to_string())),
            }
        }
        Err(why.unwrap_or_else(|| absent(Cause::NotThere, &format!("no {NAME}"))))
    }

    pub fn answer(&self, question: &Question) -> Answer {
        let answer = match question {
            Question::Gpus => self.gpus().map(Answer::Gpus),
            Question::Read { gpu, getter } => self.device(*gpu).and_then(|device| self.read(device, *getter)).map(Answer::Value),
            Question::Processes { gpu } => self.device(*gpu).and_then(|device| self.processes(device)).map(Answer::Processes),
        };
        answer.unwrap_or_else(Answer::Absent)
    }

    fn read(&self, device: Device, getter: Getter) -> Result<u64, Absent> {
        match getter {
            Getter::Energy => self.get::<c_ulonglong>(device, &["nvmlDeviceGetTotalEnergyConsumption"]),
            Getter::Power => self.get::<c_uint>(device, &["nvmlDeviceGetPowerUsage"]).map(u64::from),
            Getter::Temperature => self.get_of(device, "nvmlDeviceGetTemperature", GPU_SENSOR).map(u64::from),
            Getter::GraphicsClock => self.get_of(device, "nvmlDeviceGetClockInfo", GRAPHICS).map(u64::from),
            Getter::MemoryClock => self.get_of(device, "nvmlDeviceGetClockInfo", MEMORY).map(u64::from),
            // Renamed with driver 535; the older name is exported on.
            Getter::Reasons => {
                self.get::<c_ulonglong>(device, &["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"])
            }
            // `nvmlUtilization_t {gpu, memory}`.
            Getter::Busy => self.get::<[c_uint; 2]>(device, &["nvmlDeviceGetUtilizationRates"]).map(|[gpu, _]| gpu.into()),
            Getter::MemoryUsed => self.memory(device).map(|[_, _, used]| used),
        }
    }

    /// `nvmlMemory_t {total, free, used}`, bytes.
    fn memory(&self, device: Device) -> Result<[c_ulonglong; 3], Absent> {
        self.get(device, &["nvmlDeviceGetMemoryInfo"])
    }

    fn gpus(&self) -> Result<Gpus, Absent> {
        let driver = self.driver();
        // SAFETY: `nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *)`.
        let count: unsafe extern "C" fn(*mut c_uint) -> c_int = unsafe { self.function(&["nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"]) }?;
        let mut n = 0;
        // SAFETY: room for the one number.
        self.check(unsafe { count(&raw mut n) })?;
        let gpus = (0..n).map(|index| self.gpu(index, &driver)).collect();
        Ok(Gpus { companion_version: COMPANION_VERSION, source: self.source.clone(), driver: driver.ok(), gpus })
    }

    fn gpu(&self, index: u32, driver: &Result<String, Absent>) -> Gpu {
        let mut gpu = Gpu { index, subject: Gpu::subject_of(index, None), ..Gpu::default() };
        let mut absent = BTreeMap::new();
        let device = match self.device(index) {
            Ok(device) => device,
            Err(why) => {
                gpu.absent = [("index".to_owned(), why.reason)].into();
                return gpu;
            }
        };
        // What is asked for field by field stands there, or its reason does.
        macro_rules! set {
            ($field:ident, $value:expr) => {
                match $value {
                    Ok(value) => gpu.$field = Some(value),
                    Err(Absent { reason, .. }) => _ = absent.insert(stringify!($field).to_owned(), reason),
                }
            };
        }
        let milliwatts = |name: &str| self.get::<c_uint>(device, &[name]).map(|mw| f64::from(mw) / 1e3);
        let number = |name: &str| self.get::<c_uint>(device, &[name]);
        set!(name, self.text(device, "nvmlDeviceGetName"));
        set!(uuid, self.text(device, "nvmlDeviceGetUUID"));
        set!(driver, driver.clone());
        set!(compute_capability, self.get_two(device, "nvmlDeviceGetCudaComputeCapability").map(|(major, minor)| format!("{major}.{minor}")));
        set!(memory_bytes, self.memory(device).map(|[total, _, _]| total));
        set!(pcie_generation, number("nvmlDeviceGetCurrPcieLinkGeneration"));
        set!(pcie_width, number("nvmlDeviceGetCurrPcieLinkWidth"));
        set!(pcie_max_generation, number("nvmlDeviceGetMaxPcieLinkGeneration"));
        set!(pcie_max_width, number("nvmlDeviceGetMaxPcieLinkWidth"));
        set!(power_limit_w, milliwatts("nvmlDeviceGetEnforcedPowerLimit"));
        set!(power_limit_default_w, milliwatts("nvmlDeviceGetPowerManagementDefaultLimit"));
        set!(ecc, self.get_two(device, "nvmlDeviceGetEccMode").map(|(current, _)| current != 0));
        set!(persistence, number("nvmlDeviceGetPersistenceMode").map(|mode| mode != 0));
        gpu.subject = Gpu::subject_of(index, gpu.uuid.as_deref());
        gpu.absent = absent;
        gpu
    }

    fn driver(&self) -> Result<String, Absent> {
        let mut text = [0 as c_char; TEXT_BYTES];
        // SAFETY: `nvmlReturn_t nvmlSystemGetDriverVersion(char *, unsigned)`.
        let get: unsafe extern "C" fn(*mut c_char, c_uint) -> c_int = unsafe { self.function(&["nvmlSystemGetDriverVersion"]) }?;
        // SAFETY: the buffer has the length that is said.
        self.check(unsafe { get(text.as_mut_ptr(), TEXT_BYTES as c_uint) })?;
        Ok(of_text(&text))
    }

    fn device(&self, index: u32) -> Result<Device, Absent> {
        // SAFETY: `nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice_t *)`.
        let get: unsafe extern "C" fn(c_uint, *mut Device) -> c_int =
            unsafe { self.function(&["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"]) }?;
        let mut device = std::ptr::null_mut();
        // SAFETY: room for the one handle.
        self.check(unsafe { get(index, &raw mut device) }).map(|()| device)
    }

    /// `nvmlReturn_t name(nvmlDevice_t, T *)`. `T` has to be what that function writes, for which zero is a value.
    fn get<T: Default>(&self, device: Device, names: &[&str]) -> Result<T, Absent> {
        // SAFETY: the signature as said above.
        let get: unsafe extern "C" fn(Device, *mut T) -> c_int = unsafe { self.function(names) }?;
        let mut value = T::default();
        // SAFETY: a live handle and room for one value.
        self.check(unsafe { get(device, &raw mut value) }).map(|()| value)
    }

    /// `nvmlReturn_t name(nvmlDevice_t, unsigned which, unsigned *)`.
    fn get_of(&self, device: Device, name: &str, which: c_uint) -> Result<c_uint, Absent> {
        // SAFETY: the signature as said above.
        let get: unsafe extern "C" fn(Device, c_uint, *mut c_uint) -> c_int = unsafe { self.function(&[name]) }?;
        let mut value = 0;
        // SAFETY: a live handle and room for one value.
        self.check(unsafe { get(device, which, &raw mut value) }).map(|()| value)
    }

    /// `nvmlReturn_t name(nvmlDevice_t, int *, int *)`.
    fn get_two(&self, device: Device, name: &str) -> Result<(c_int, c_int), Absent> {
        // SAFETY: the signature as said above.
        let get: unsafe extern "C" fn(Device, *mut c_int, *mut c_int) -> c_int = unsafe { self.function(&[name]) }?;
        let (mut one, mut two) = (0, 0);
        // SAFETY: a live handle and room for both.
        self.check(unsafe { get(device, &raw mut one, &raw mut two) }).map(|()| (one, two))
    }

    /// `nvmlReturn_t name(nvmlDevice_t, char *, unsigned)`.
    fn text(&self, device: Device, name: &str) -> Result<String, Absent> {
        let mut text = [0 as c_char; TEXT_BYTES];
        // SAFETY: the signature as said above.
        let get: unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int = unsafe { self.function(&[name]) }?;
        // SAFETY: a live handle, and the buffer has the length that is said.
        self.check(unsafe { get(device, text.as_mut_ptr(), TEXT_BYTES as c_uint) })?;
        Ok(of_text(&text))
    }

    fn processes(&self, device: Device) -> Result<Vec<ComputeProcess>, Absent> {
        let process = |pid, used| ComputeProcess { pid, memory_bytes: (used != NOT_AVAILABLE).then_some(used) };
        let newer = ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"];
        match self.list::<ProcessInfo>(device, &newer) {
            Err(why) if why.cause == Cause::NotThere => {}
            listed => return Ok(listed?.into_iter().map(|info| process(info.pid, info.used)).collect()),
        }
        let listed = self.list::<ProcessInfoV1>(device, &["nvmlDeviceGetComputeRunningProcesses"])?;
        Ok(listed.into_iter().map(|info| process(info.pid, info.used)).collect())
    }

    /// `nvmlReturn_t name(nvmlDevice_t, unsigned *count, T *)`.
    fn list<T: Default + Clone>(&self, device: Device, names: &[&str]) -> Result<Vec<T>, Absent> {
        // SAFETY: the signature as said above.
        let get: unsafe extern "C" fn(Device, *mut c_uint, *mut T) -> c_int = unsafe { self.function(names) }?;
        let mut room = 64;
        loop {
            let mut all = vec![T::default(); room];
            let mut n = room as c_uint;
            // SAFETY: a live handle, and room for as many as are said.
            match unsafe { get(device, &raw mut n, all.as_mut_ptr()) } {
                // More of them came between two calls, too.
                INSUFFICIENT_SIZE if room < MOST_PROCESSES => room *= 2,
                code => {
                    self.check(code)?;
                    all.truncate(n as usize);
                    return Ok(all);
                }
            }
        }
    }

    /// A function by the first of its names that the library has.
    ///
    /// # Safety
    /// `T` is that function's type.
    unsafe fn function<T: Copy>(&self, names: &[&str]) -> Result<T, Absent> {
        for name in names {
            // SAFETY: by the caller's word.
            if let Ok(symbol) = unsafe { self.library.get::<T>(name.as_bytes()) } {
                return Ok(*symbol);
            }
        }
        Err(absent(Cause::NotThere, &format!("this library has no {}", names[0])))
    }

    fn check(&self, code: c_int) -> Result<(), Absent> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: `const char *nvmlErrorString(nvmlReturn_t)`.
        let words: Result<unsafe extern "C" fn(c_int) -> *const c_char, _> = unsafe { self.function(&["nvmlErrorString"]) };
        let words = words.ok().map(|words| {
            // SAFETY: as above; the text is the library's own and stays.
            unsafe {
                let text = words(code);
                if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
            }
        });
        let reason = words.filter(|words| !words.is_empty()).unwrap_or_else(|| format!("NVML error {code}"));
        let cause = match code {
            NOT_SUPPORTED | DRIVER_NOT_LOADED => Cause::NotThere,
            NO_PERMISSION => Cause::NotPermitted,
            _ => Cause::Failed,
        };
        Err(Absent { cause, reason })
    }
}

fn absent(cause: Cause, reason: &str) -> Absent {
    Absent { cause, reason: reason.to_owned() }
}

/// The text in a buffer, whether or not it was ended.
fn of_text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|&&c| c != 0).map(|c| c.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
