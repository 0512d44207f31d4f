//! What the user makes: queue pairs, completion queues, regions, address handles, requests.

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

/// What the objects of an engine are made with: numbers that peers must not guess.
pub(crate) struct ObjectSecrets {
    pub region_keys: HashKey,
    /// The first queue pair gets this index.
    pub qpn_first: u8,
    pub tilings: u64,
    pub guessers: Keyed,
}

/// The tables of objects.
#[derive(Debug)]
pub(crate) struct Objects {
    /// Protection domains in use.
    pub pds: Vec<bool>,
    pub cqs: CqTable,
    pub qps: QpTable,
    pub mrs: MrTable,
    /// Guesses of region keys that are judged yet: of the whole engine, because contexts are cheap
    /// to make.
    pub guesses: Bucket,
    pub guessers: Guessers,
    pub ahs: AhTable,
    pub wrs: WrTable,
    pub tilings: TilingKey,
    /// Reads that are being served.
    pub places: Places,
    job_id_last: JobId,
}

impl Objects {
    pub fn new(cfg: &EngineConfig, now: Time, secrets: ObjectSecrets) -> Self {
        Self {
            pds: Vec::new(),
            cqs: CqTable::default(),
            qps: QpTable::new(cfg.slot, secrets.qpn_first),
            mrs: MrTable::new(secrets.region_keys),
            guesses: Bucket::new(now, KEY_GUESSES_MAX, KEY_GUESS_EVERY),
            guessers: Guessers::new(now, secrets.guessers),
            ahs: AhTable::default(),
            wrs: WrTable::new(cfg.wrs_max.min(WRS_MAX as u32)),
            tilings: TilingKey::new(secrets.tilings),
            places: Places::default(),
            job_id_last: JobId(0),
        }
    }

    /// A number for the next read that is served.
    pub fn job_id_take(&mut self) -> JobId {
        self.job_id_last = self.job_id_last.next();
        self.job_id_last
    }
}
