"""Logs of other auto-tuners: AutoTVM's, and Ansor's and TenSet's. Loads no TVM, old or new."""
