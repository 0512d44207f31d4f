//! Objects that the user creates: queue pairs, completion queues, memory regions, address handles
//! and work requests.

pub(crate) mod cq;
pub(crate) mod keys;
pub(crate) mod memory;
pub(crate) mod places;
pub(crate) mod qp;
pub(crate) mod tiling;
pub(crate) mod wr;

use crate::bucket::Bucket;
use crate::config::EngineConfig;
use crate::hash::Keyed;
use crate::ids::JobId;
use crate::limits::{KEY_GUESS_EVERY, KEY_GUESSES_MAX, WRS_MAX};
use crate::random::HashKey;
use crate::time::Time;
use cq::CqTable;
use keys::Guessers;
use memory::{AhTable, MrTable};
use places::Places;
use qp::QpTable;
use tiling::TilingKey;
use wr::WrTable;

/// Secrets with which an engine's objects are made, so that peers cannot guess their numbers.
pub(crate) struct ObjectSecrets {
    pub region_keys: HashKey,
    /// Index of the first queue pair.
    pub qpn_first: u8,
    pub tilings: u64,
    pub guessers: Keyed,
}

/// The tables of the engine's objects.
#[derive(Debug)]
pub(crate) struct Objects {
    /// Protection domains in use.
    pub pds: Vec<bool>,
    pub cqs: CqTable,
    pub qps: QpTable,
    pub mrs: MrTable,
    /// Budget of wrong region keys that are still answered. It is one for the whole engine, because
    /// contexts are cheap to make.
    pub guesses: Bucket,
    pub guessers: Guessers,
    pub ahs: AhTable,
    pub wrs: WrTable,
    pub tilings: TilingKey,
    /// Reads of peers that are being served.
    pub places: Places,
    job_id_last: JobId,
}

impl Objects {
    pub fn new(cfg: &EngineConfig, now: Time, secrets: ObjectSecrets) -> Self {
        // The keys are the same in all engines of a device, so a guess counts as one of all.
        let engines = cfg.engines_of_device;
        let guesses = (KEY_GUESSES_MAX / engines).max(1);
        Self {
            pds: Vec::new(),
            cqs: CqTable::default(),
            qps: QpTable::new(cfg.slot, secrets.qpn_first),
            mrs: MrTable::new(secrets.region_keys),
            guesses: Bucket::new(now, guesses, KEY_GUESS_EVERY.scale(engines.into(), 1)),
            guessers: Guessers::new(now, secrets.guessers),
            ahs: AhTable::default(),
            wrs: WrTable::new(cfg.wrs_max.min(WRS_MAX as u32)),
            tilings: TilingKey::new(secrets.tilings),
            places: Places::default(),
            job_id_last: JobId(0),
        }
    }

    /// Takes the number of the next read to be served.
    pub fn job_id_take(&mut self) -> JobId {
        self.job_id_last = self.job_id_last.next();
        self.job_id_last
    }
}
