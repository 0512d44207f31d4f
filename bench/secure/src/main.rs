//! The two ends of a stream over TCP with TLS 1.3 (rustls) and over QUIC (quinn), for the figures
//! of sealed SRD in `docs/performance.md`. `cargo xtask report --sealed` starts them as it starts
//! its own ends: a serving end prints a line of JSON when it is ready and another one with its
//! results when its standard input ends, a driving end prints its results when its time is over.
//!
//! Both libraries use the cipher and the cryptographic library of sealed SRD: AES-256-GCM of
//! AWS-LC.
#![forbid(unsafe_code)]

mod quic;
mod tls;

use rustix::time::{ClockId, clock_gettime};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
};
use std::{
    collections::BTreeMap, error::Error, io::Read as _, process::ExitCode, sync::Arc, time::Instant,
};

pub type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Bytes that a program writes and reads at once.
pub const WRITE_BYTES: usize = 256 << 10;
/// Name in the certificate.
pub const NAME: &str = "bench";

const HELP: &str = "\
srd-secure tls-serve|quic-serve --local IP:PORT --size BYTES
srd-secure tls-drive|quic-drive --remote IP:PORT --size BYTES --seconds S --cert HEX

--size is the payload of one packet; --cert is the certificate that the serving end prints.";

/// The options `--name VALUE`.
pub struct Options(BTreeMap<String, String>);

impl Options {
    fn new(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut all = BTreeMap::new();
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            all.insert(name.trim_start_matches("--").to_owned(), value);
        }
        Ok(Self(all))
    }

    pub fn need<T: std::str::FromStr<Err: Error + Send + Sync + 'static>>(
        &self,
        name: &str,
    ) -> Result<T> {
        let value = self.0.get(name).ok_or_else(|| format!("--{name} is missing\n{HELP}"))?;
        Ok(value.parse::<T>()?)
    }
}

/// Only AES-256-GCM, as sealed SRD uses it on processors with instructions for AES.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| {
        suite.suite() == rustls::CipherSuite::TLS13_AES_256_GCM_SHA384
            // QUIC protects its first packets with this one.
            || suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256
    });
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != rustls::CipherSuite::TLS13_AES_256_GCM_SHA384);
    Arc::new(provider)
}

/// The configuration of a serving end, and its certificate.
pub fn server_config() -> Result<(ServerConfig, CertificateDer<'static>)> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
    let cert = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![cert.clone()], key.into())?;
    Ok((config, cert))
}

/// The configuration of a driving end that trusts this certificate.
pub fn client_config(options: &Options) -> Result<ClientConfig> {
    let hex: String = options.need("cert")?;
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2).unwrap_or("x"), 16);
    let der = (0..hex.len()).step_by(2).map(byte).collect::<Result<Vec<u8>, _>>()?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(der))?;
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Says that the serving end is ready, and how its certificate reads.
pub fn ready(cert: &CertificateDer<'_>) {
    let hex: String = cert.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{{\"cert\":\"{hex}\"}}");
}

/// Start of a measurement.
pub struct Since(Instant, f64);

impl Since {
    pub fn now() -> Self {
        Self(Instant::now(), cpu_seconds())
    }

    pub fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }

    /// Prints the results of an end.
    pub fn tell(&self, bytes: u64) {
        let (seconds, cpu) = (self.seconds(), cpu_seconds() - self.1);
        println!("{{\"bytes\":{bytes},\"seconds\":{seconds},\"cpu_seconds\":{cpu}}}");
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Waits until standard input ends.
pub fn input_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let end = words.next().unwrap_or_default();
    let run = || {
        let options = Options::new(words)?;
        match end.as_str() {
            "tls-serve" => tls::serve(&options),
            "tls-drive" => tls::drive(&options),
            "quic-serve" => quic::serve(&options),
            "quic-drive" => quic::drive(&options),
            _ => Err(HELP.into()),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("srd-secure: {e}");
            ExitCode::from(2)
        }
    }
}
