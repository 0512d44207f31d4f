//! Policies of one's own, registered by name: a program that uses the lab as a library adds them,
//! and specs name them (`engine.rate_policy`, `engine.path_policy`).

use crate::spec::EngineSpec;
use srd_core::Span;
use srd_core::Time;
use srd_core::policy::{LinkView, Make, OwnPolicies, PathLaw, RateLaw};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, RwLock};

/// Rate policies of the engine.
pub const RATES: [&str; 2] = ["srd", "fixed"];
/// Path policies of the engine.
pub const PATHS: [&str; 4] = ["srd", "oblivious", "ecmp", "rtt-p2c"];

/// Parameters of a policy, from `engine.rate_parameters` or `engine.path_parameters`.
#[derive(Debug)]
pub struct Parameters<'a> {
    given: &'a BTreeMap<String, f64>,
    asked: BTreeSet<String>,
    errors: Vec<String>,
}

impl<'a> Parameters<'a> {
    fn new(given: &'a BTreeMap<String, f64>) -> Self {
        Self { given, asked: BTreeSet::new(), errors: Vec::new() }
    }

    /// The number of a key, which must be in `range`; `default` if the spec does not give it. Keys
    /// that a policy never asks for are refused.
    pub fn number(&mut self, key: &str, default: f64, range: RangeInclusive<f64>) -> f64 {
        self.asked.insert(key.into());
        let value = self.given.get(key).copied().unwrap_or(default);
        if !range.contains(&value) {
            let (least, most) = (range.start(), range.end());
            self.errors.push(format!("{key} = {value}: give a number from {least} to {most}"));
            return default;
        }
        value
    }

    /// The first thing that is wrong.
    fn error(&self) -> Option<String> {
        if let Some(error) = self.errors.first() {
            return Some(error.clone());
        }
        let unknown = self.given.keys().find(|k| !self.asked.contains(*k))?;
        let known: Vec<&str> = self.asked.iter().map(String::as_str).collect();
        Some(format!("{unknown} is no parameter of this policy; they are {}", known.join(", ")))
    }
}

/// Makes the object of a remote address.
type MakeWith<T> = dyn Fn(&mut Parameters<'_>, &LinkView) -> Box<T> + Send + Sync;

/// Registered policies of one kind.
struct Registry<T: ?Sized>(RwLock<BTreeMap<String, Arc<MakeWith<T>>>>);

impl<T: ?Sized> Registry<T> {
    const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    fn add(&self, name: &str, own: &[&str], make: Arc<MakeWith<T>>) {
        assert!(!own.contains(&name), "the engine has a policy `{name}` of its own");
        let mut all = self.0.write().expect("nothing panics while it adds");
        let before = all.insert(name.into(), make);
        assert!(before.is_none(), "a policy `{name}` was registered before");
    }

    fn get(&self, name: &str) -> Option<Arc<MakeWith<T>>> {
        self.0.read().expect("nothing panics while it adds").get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.0.read().expect("nothing panics while it adds").keys().cloned().collect()
    }
}

static RATE: Registry<dyn RateLaw> = Registry::new();
static PATH: Registry<dyn PathLaw> = Registry::new();

/// Registers a rate policy. `make` is called for each remote address, with the parameters of the
/// spec.
///
/// # Panics
/// If there is a policy of this name.
pub fn rate_policy_add<L: RateLaw + 'static>(
    name: &str,
    make: impl Fn(&mut Parameters<'_>, &LinkView) -> L + Send + Sync + 'static,
) {
    RATE.add(name, &RATES, Arc::new(move |keys, link| Box::new(make(keys, link))));
}

/// Registers a path policy, like [`rate_policy_add`].
///
/// # Panics
/// If there is a policy of this name.
pub fn path_policy_add<L: PathLaw + 'static>(
    name: &str,
    make: impl Fn(&mut Parameters<'_>, &LinkView) -> L + Send + Sync + 'static,
) {
    PATH.add(name, &PATHS, Arc::new(move |keys, link| Box::new(make(keys, link))));
}

/// A registered policy with its parameters.
struct Chosen<T: ?Sized> {
    name: String,
    given: BTreeMap<String, f64>,
    make: Arc<MakeWith<T>>,
}

impl<T: ?Sized> std::fmt::Debug for Chosen<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{} {:?}\"", self.name, self.given)
    }
}

impl<T: ?Sized> Make<T> for Chosen<T> {
    fn make(&self, link: &LinkView) -> Box<T> {
        (self.make)(&mut Parameters::new(&self.given), link)
    }
}

/// The own policy of a name; `None` for one of the engine's. `field`: its field in a spec.
fn chosen<T: ?Sized>(
    registry: &Registry<T>,
    engines: &[&str],
    name: Option<&str>,
    given: &BTreeMap<String, f64>,
    field: &str,
) -> Result<Option<Chosen<T>>, String> {
    let name = name.unwrap_or("srd");
    if engines.contains(&name) {
        return match given.keys().next() {
            None => Ok(None),
            Some(key) => Err(format!(
                "engine.{field}_parameters.{key}: engine.{field}_policy = \"{name}\" has no \
                 parameters there; leave the table out"
            )),
        };
    }
    let Some(make) = registry.get(name) else {
        let own = registry.names();
        let all: Vec<&str> =
            engines.iter().copied().chain(own.iter().map(String::as_str)).collect();
        return Err(format!(
            "engine.{field}_policy = \"{name}\" is not one of {}; docs/lab.md says how to add one",
            all.join(", ")
        ));
    };
    let mut keys = Parameters::new(given);
    let _ = make(&mut keys, &ANY_LINK);
    if let Some(error) = keys.error() {
        return Err(format!("engine.{field}_parameters: {error}"));
    }
    Ok(Some(Chosen { name: name.into(), given: given.clone(), make }))
}

/// A link for the check of parameters: 100 Gb/s and 10 us.
const ANY_LINK: LinkView = LinkView {
    now: Time(0),
    line_bytes_per_sec: 12_500_000_000,
    rtt_ns_min: Span::from_us(10).0,
    rtt_known: false,
    rtt_ns_smoothed: Span::from_us(10).0,
    mtu: 4096,
    burst_bytes: 8192,
    inflight_bytes: 0,
    credited: false,
};

/// The own policies that a spec names.
///
/// # Errors
/// The text names the field and what to give instead.
pub fn own_policies(e: &EngineSpec) -> Result<OwnPolicies, String> {
    let rate = chosen(&RATE, &RATES, e.rate_policy.as_deref(), &e.rate_parameters, "rate")?;
    let path = chosen(&PATH, &PATHS, e.path_policy.as_deref(), &e.path_parameters, "path")?;
    Ok(OwnPolicies {
        rate: rate.map(|c| Arc::new(c) as Arc<dyn Make<dyn RateLaw>>),
        path: path.map(|c| Arc::new(c) as Arc<dyn Make<dyn PathLaw>>),
    })
}
