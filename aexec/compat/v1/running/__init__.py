"""How graphs are run and kept: sessions, training sessions, queue runners, servers, savers and summaries."""
