"""Everything that does file I/O. In pyWATS this is `pywats_client`."""
