//! The flags for TLS towards servers, the same for all commands that connect to some.

use std::path::PathBuf;

use heatsink_tls::{ClientFiles, ClientTls};

use crate::exit::Failure;

/// TLS towards servers, for `rediss://` and its kin.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "TLS, for rediss://")]
pub(crate) struct TlsArgs {
    /// Certificate authorities to trust (PEM) [default: those of the system]
    #[arg(long = "tls-ca", value_name = "PATH")]
    ca: Option<PathBuf>,
    /// Certificate to present (PEM)
    #[arg(long = "tls-cert", value_name = "PATH", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long = "tls-key", value_name = "PATH", requires = "certificate")]
    key: Option<PathBuf>,
    /// Name to send and to verify instead of the host
    #[arg(long = "tls-server-name", value_name = "HOST")]
    server_name: Option<String>,
}

impl TlsArgs {
    /// Reads the files, if `wanted`. Without a URL that asks for TLS they are refused: they
    /// would have no effect.
    pub(crate) fn load(&self, wanted: bool) -> Result<Option<ClientTls>, Failure> {
        let files = ClientFiles {
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            server_name: self.server_name.clone(),
        };
        if !wanted {
            return if files == ClientFiles::default() {
                Ok(None)
            } else {
                Err(Failure::Usage("--tls-... has no effect without a rediss:// URL".to_owned()))
            };
        }
        let tls = ClientTls::load(files).map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Some(tls))
    }
}
